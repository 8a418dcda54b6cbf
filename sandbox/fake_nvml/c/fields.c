/* Field values: each is a number of an attribute, a counter at zero, or what the state says of just this field. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "links.h"
#include "memory.h"

enum link_field { NO_LINK, EACH_LINK };

/* Which attribute, and which number of it, answers a field. */
static const struct source {
    unsigned id;
    enum value_type type;
    enum link_field link;
    const char *attribute;
    unsigned place;
} sources[] = {
    {1, VALUE_UINT, NO_LINK, "ecc_mode", 0},
    {2, VALUE_UINT, NO_LINK, "ecc_mode", 1},
    {31, VALUE_UINT, NO_LINK, "retired_pending", 0},
    {82, VALUE_UINT, NO_LINK, "memory_temperature", 0},
    {90, VALUE_UINT, NO_LINK, "nvlink_mbps", 0},
    {94, VALUE_UINT, NO_LINK, "pcie_replays", 0},
    {142, VALUE_UINT, NO_LINK, "remapped_rows", 0},
    {143, VALUE_UINT, NO_LINK, "remapped_rows", 1},
    {144, VALUE_UINT, NO_LINK, "remapped_rows", 2},
    {145, VALUE_UINT, NO_LINK, "remapped_rows", 3},
    {164, VALUE_UINT, EACH_LINK, "nvlink_mbps", 0},
    {166, VALUE_UINT, EACH_LINK, "nvlink_version", 0},
    {170, VALUE_UINT, NO_LINK, "c2c_links", 0},
    {186, VALUE_UINT, NO_LINK, "power_mw", 0},
    {190, VALUE_UINT, NO_LINK, "power_limit_mw", 0},
    {220, VALUE_ULONG_LONG, EACH_LINK, "nvlink_ber", 0},
    {222, VALUE_ULONG_LONG, EACH_LINK, "nvlink_ber", 0},
    {230, VALUE_UINT, NO_LINK, "recovery_action", 0},
    {301, VALUE_UINT, NO_LINK, "remapped_rows_inactive", 0},
    {302, VALUE_UINT, NO_LINK, "remapped_rows_inactive", 1},
};

static bool about_nvlink(unsigned id)
{
    return (id >= 32 && id <= 73) || (id >= 84 && id <= 91) || (id >= 96 && id <= 141) || (id >= 146 && id <= 168) ||
           (id >= 200 && id <= 225) || (id >= 235 && id <= 250) || (id >= 289 && id <= 296);
}

/* Attribute zero_fields lists ranges of counters that this model has and that stand at 0: "74-81 94 206-222". */
static bool counts_zero(const struct gpu *gpu, unsigned id)
{
    const char *text;
    char *after;
    if (gpu_text(gpu, "zero_fields", &text) != NVML_SUCCESS)
        return false;
    for (;;) {
        unsigned long first = strtoul(text, &after, 10), last = first;
        if (after == text)
            return false;
        if (*after == '-')
            last = strtoul(after + 1, &after, 10);
        if (id >= first && id <= last)
            return true;
        text = after;
    }
}

static void put(struct field_value *value, enum value_type type, const char *text)
{
    value->type = (uint32_t)type;
    memset(&value->value, 0, sizeof value->value);
    switch (type) {
    case VALUE_DOUBLE: value->value.as_double = strtod(text, NULL); break;
    case VALUE_UINT: value->value.as_uint = (unsigned)strtoul(text, NULL, 0); break;
    case VALUE_ULONG: value->value.as_ulong = strtoul(text, NULL, 0); break;
    case VALUE_ULONG_LONG: value->value.as_ulong_long = strtoull(text, NULL, 0); break;
    case VALUE_LONG_LONG: value->value.as_long_long = strtoll(text, NULL, 0); break;
    case VALUE_INT: value->value.as_int = (int)strtol(text, NULL, 0); break;
    case VALUE_USHORT: value->value.as_ushort = (unsigned short)strtoul(text, NULL, 0); break;
    }
}

static void put_number(struct field_value *value, enum value_type type, unsigned long long number)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", number);
    put(value, type, text);
}

/* What the state says of just this field; false where it says nothing. */
static bool overridden(const struct call *call, struct field_value *value, nvmlReturn_t *code)
{
    for (size_t i = 0; i < call->state->field_count; i++) {
        const struct field *field = &call->state->fields[i];
        if (field->gpu != call->gpu->number || field->id != value->field || (field->scope != ANY && field->scope != (long)value->scope))
            continue;
        *code = field->type < 0 ? (nvmlReturn_t)strtoul(field->value, NULL, 0) : NVML_SUCCESS;
        if (field->type >= 0)
            put(value, (enum value_type)field->type, field->value);
        return true;
    }
    return false;
}

static nvmlReturn_t answer_link_field(const struct call *call, struct field_value *value)
{
    unsigned long long states[MOST_LINKS];
    size_t count;
    nvmlReturn_t code = links_read(call->gpu, states, &count);
    if (value->field == 91 && code == NVML_NOT_SUPPORTED) {
        put_number(value, VALUE_UINT, 0);
        return NVML_SUCCESS;
    }
    if (code != NVML_SUCCESS)
        return code;
    if (value->field == 165 && value->scope >= count)
        return NVML_INVALID_ARGUMENT;
    put_number(value, VALUE_UINT, value->field == 165 ? states[value->scope] : count);
    return NVML_SUCCESS;
}

/* Errors of single links: fields of links 0-5, of links 6-11, and from Hopper on one whose scope is the link. */
static const struct link_errors {
    unsigned first, second, scoped;
} link_errors[] = {{46, 108, 161}, {53, 114, 162}, {32, 96, 163}, {39, 102, 0}, {148, 154, 0}};

/* Give the counter of nvmlDeviceGetNvLinkErrorCounter and the link that a field is about; false where it is none of these. */
static bool about_link_errors(const struct field_value *value, unsigned *counter, unsigned long *link)
{
    for (*counter = 0; *counter < sizeof link_errors / sizeof *link_errors; ++*counter) {
        const struct link_errors *ids = &link_errors[*counter];
        *link = value->field == ids->scoped ? value->scope
                : value->field - ids->first < 6 ? value->field - ids->first : value->field - ids->second + 6;
        if (value->field == ids->scoped || value->field - ids->first < 6 || value->field - ids->second < 6)
            return true;
    }
    return false;
}

static nvmlReturn_t answer_link_errors(const struct call *call, struct field_value *value, unsigned counter, unsigned long link)
{
    unsigned long long errors;
    nvmlReturn_t code = links_need(call->gpu, link);
    bool scoped = value->field >= 161;
    if (code == NVML_INVALID_ARGUMENT && !scoped)
        return NVML_NOT_SUPPORTED;
    if (code == NVML_SUCCESS && scoped && !gpu_flag(call->gpu, "nvlink_scoped_errors"))
        return NVML_NOT_SUPPORTED;
    if (code == NVML_SUCCESS && (code = link_error_counter(call->gpu, counter, link, &errors)) == NVML_SUCCESS)
        put_number(value, VALUE_ULONG_LONG, errors);
    return code;
}

/* ECC totals and retired pages, which memory.c counts. */
static nvmlReturn_t answer_memory_field(const struct call *call, struct field_value *value)
{
    unsigned long long number = 0;
    nvmlReturn_t code = value->field < 29 ? ecc_total(call, (value->field - 3) % 2, (value->field - 3) / 2, &number)
                                          : retired_count(call, value->field - 29, &number);
    if (code == NVML_SUCCESS)
        put_number(value, VALUE_ULONG_LONG, number);
    return code;
}

static nvmlReturn_t answer_field(const struct call *call, struct field_value *value)
{
    unsigned long long numbers[4];
    nvmlReturn_t code;
    if (overridden(call, value, &code))
        return code;
    if (value->field == 91 || value->field == 147 || value->field == 165)
        return answer_link_field(call, value);
    if ((value->field >= 3 && value->field <= 6) || value->field == 29 || value->field == 30)
        return answer_memory_field(call, value);
    unsigned counter;
    unsigned long link;
    if (about_link_errors(value, &counter, &link))
        return answer_link_errors(call, value, counter, link);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        const struct source *source = &sources[i];
        if (source->id != value->field)
            continue;
        if (strncmp(source->attribute, "remapped", 8) == 0 && mig_exists(call->gpu))
            return NVML_NOT_SUPPORTED;
        if (source->link == EACH_LINK && (code = links_need(call->gpu, value->scope)) != NVML_SUCCESS)
            return code;
        if ((code = gpu_numbers(call->gpu, source->attribute, numbers, 4, NULL)) == NVML_SUCCESS)
            put_number(value, source->type, numbers[source->place]);
        return code;
    }
    if (!counts_zero(call->gpu, value->field))
        return NVML_NOT_SUPPORTED;
    put_number(value, VALUE_ULONG_LONG, 0);
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, struct field_value *values)
{
    struct timespec now;
    bool nvlink = false;
    OPEN_DEVICE(nvmlDeviceGetFieldValues, device);
    if (count <= 0 || !values)
        return NVML_INVALID_ARGUMENT;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        values[i].timestamp_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        values[i].latency_us = 0;
        values[i].code = answer_field(&call, &values[i]);
        nvlink = nvlink || about_nvlink(values[i].field);
    }
    /* Real drivers are suspected of this; only where it is asked for, since it writes into the caller's memory. */
    if (nvlink && state_number(call.state, "touch_past_end", 0)) {
        values[count].code = NVML_SUCCESS;
        values[count].value.as_ulong_long = ~0ULL;
    }
    return NVML_SUCCESS;
}
