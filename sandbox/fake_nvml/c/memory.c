/* Memory: sizes, ECC, remapped rows, retired pages, and the limits that root sets for a cgroup (driver 615 and newer). */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

static const unsigned long long NO_LIMIT = ~0ULL;

/* ---- sizes ---- */

static nvmlReturn_t read_memory(const struct call *call, struct memory_info_v2 *memory)
{
    unsigned long long bytes[3];
    nvmlReturn_t code = gpu_numbers(call->gpu, "memory", bytes, 3, NULL); /* total, reserved, used */
    if (call->is_mig) {
        bytes[0] = call->mig.memory_mib << 20;
        bytes[1] = bytes[2] = 0;
    }
    memory->total = bytes[0];
    memory->reserved = bytes[1];
    memory->used = bytes[2];
    memory->free = bytes[0] - bytes[1] - bytes[2];
    return code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory_info *info)
{
    struct memory_info_v2 memory;
    OPEN_ANY_DEVICE(nvmlDeviceGetMemoryInfo, device);
    if (!info)
        return NVML_INVALID_ARGUMENT;
    if ((code = read_memory(&call, &memory)) == NVML_SUCCESS) /* the old struct counts what is reserved as used */
        *info = (struct memory_info){memory.total, memory.free, memory.used + memory.reserved};
    return code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_info_v2 *info)
{
    OPEN_ANY_DEVICE(nvmlDeviceGetMemoryInfo_v2, device);
    if (!info)
        return NVML_INVALID_ARGUMENT;
    if (info->version != STRUCT_VERSION(struct memory_info_v2, 2))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    return read_memory(&call, info);
}

/* ---- ECC ---- */

EXPORTED nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    unsigned long long modes[2];
    OPEN_DEVICE(nvmlDeviceGetEccMode, device);
    if (!current || !pending)
        return NVML_INVALID_ARGUMENT;
    if ((code = gpu_numbers(call.gpu, "ecc_mode", modes, 2, NULL)) == NVML_SUCCESS) {
        *current = (unsigned)modes[0];
        *pending = (unsigned)modes[1];
    }
    return code;
}

/* Counters stand as ecc.TYPE.COUNTER.LOCATION; one that does not stand there is 0 where the GPU has ECC at all. */
static nvmlReturn_t read_counter(const struct call *call, unsigned type, unsigned counter, int location, unsigned long long *errors)
{
    char name[48];
    unsigned long long mode;
    nvmlReturn_t code = gpu_numbers(call->gpu, "ecc_mode", &mode, 1, NULL);
    if (code == NVML_SUCCESS && !mode)
        code = NVML_NOT_SUPPORTED;
    if (code != NVML_SUCCESS)
        return code;
    if (location >= 0)
        snprintf(name, sizeof name, "ecc.%u.%u.%d", type, counter, location);
    else
        snprintf(name, sizeof name, "ecc.%u.%u", type, counter);
    if (gpu_attribute(call->gpu, name))
        return gpu_numbers(call->gpu, name, errors, 1, NULL);
    *errors = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t ecc_total(const struct call *call, unsigned type, unsigned counter, unsigned long long *errors)
{
    char name[48];
    nvmlReturn_t code = read_counter(call, type, counter, -1, errors);
    snprintf(name, sizeof name, "ecc.%u.%u", type, counter);
    if (code != NVML_SUCCESS || gpu_attribute(call->gpu, name))
        return code;
    for (int location = 0; location < 8 && code == NVML_SUCCESS; location++) { /* else the sum of all places */
        unsigned long long some = 0;
        code = read_counter(call, type, counter, location, &some);
        *errors += some;
    }
    return code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter, unsigned long long *errors)
{
    OPEN_DEVICE(nvmlDeviceGetTotalEccErrors, device);
    if (type > 1 || counter > 1 || !errors)
        return NVML_INVALID_ARGUMENT;
    return ecc_total(&call, type, counter, errors);
}

EXPORTED nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned type, unsigned counter, unsigned location,
                                                      unsigned long long *errors)
{
    OPEN_DEVICE(nvmlDeviceGetMemoryErrorCounter, device);
    if (type > 1 || counter > 1 || location > 7 || !errors)
        return NVML_INVALID_ARGUMENT;
    if (counter == 0 && mig_exists(call.gpu))
        return NVML_NOT_SUPPORTED; /* volatile counts per place are not the parent's under MIG */
    return read_counter(&call, type, counter, (int)location, errors);
}

EXPORTED nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, struct sram_status *status)
{
    unsigned long long numbers[12];
    OPEN_DEVICE(nvmlDeviceGetSramEccErrorStatus, device);
    if (!status)
        return NVML_INVALID_ARGUMENT;
    if (status->version != STRUCT_VERSION(struct sram_status, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    if ((code = gpu_numbers(call.gpu, "sram", numbers, 12, NULL)) != NVML_SUCCESS)
        return code;
    memcpy(&status->aggregate_parity, numbers, 11 * sizeof *numbers); /* eleven counters in the struct's order */
    status->threshold_exceeded = (unsigned)numbers[11];
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, struct repair_status *status)
{
    unsigned long long pending[2];
    OPEN_DEVICE(nvmlDeviceGetRepairStatus, device);
    if (!status)
        return NVML_INVALID_ARGUMENT;
    if (status->version != STRUCT_VERSION(struct repair_status, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    if ((code = gpu_numbers(call.gpu, "repair", pending, 2, NULL)) == NVML_SUCCESS) {
        status->channel_pending = (unsigned)pending[0];
        status->tpc_pending = (unsigned)pending[1];
    }
    return code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device, struct unrepairable_memory *memory)
{
    OPEN_DEVICE(nvmlDeviceGetUnrepairableMemoryFlag_v1, device);
    if (!memory)
        return NVML_INVALID_ARGUMENT;
    if (memory->version != STRUCT_VERSION(struct unrepairable_memory, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    return give_uint(&call, "unrepairable_memory", &memory->flag);
}

/* ---- remapped rows, retired pages ---- */

static nvmlReturn_t read_remaps(const struct call *call, const char *name, unsigned long long *numbers, size_t count)
{
    return mig_exists(call->gpu) ? NVML_NOT_SUPPORTED : gpu_numbers(call->gpu, name, numbers, count, NULL);
}

EXPORTED nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable,
                                                unsigned *pending, unsigned *failed)
{
    unsigned long long rows[4];
    OPEN_DEVICE(nvmlDeviceGetRemappedRows, device);
    if (!correctable || !uncorrectable || !pending || !failed)
        return NVML_INVALID_ARGUMENT;
    if ((code = read_remaps(&call, "remapped_rows", rows, 4)) == NVML_SUCCESS) {
        *correctable = (unsigned)rows[0];
        *uncorrectable = (unsigned)rows[1];
        *pending = (unsigned)rows[2];
        *failed = (unsigned)rows[3];
    }
    return code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetRemappedRows_v2(nvmlDevice_t device, struct remapped_rows_v2 *info)
{
    unsigned long long rows[4], inactive[2];
    OPEN_DEVICE(nvmlDeviceGetRemappedRows_v2, device);
    if (!info)
        return NVML_INVALID_ARGUMENT;
    if ((code = read_remaps(&call, "remapped_rows", rows, 4)) != NVML_SUCCESS)
        return code;
    gpu_numbers(call.gpu, "remapped_rows_inactive", inactive, 2, NULL);
    *info = (struct remapped_rows_v2){(unsigned)rows[0], (unsigned)inactive[0], (unsigned)rows[1],
                                      (unsigned)inactive[1], (unsigned)rows[2], (unsigned)rows[3]};
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, struct row_remapper_histogram *histogram)
{
    unsigned long long banks[5];
    OPEN_DEVICE(nvmlDeviceGetRowRemapperHistogram, device);
    if (!histogram)
        return NVML_INVALID_ARGUMENT;
    if ((code = read_remaps(&call, "row_remapper_histogram", banks, 5)) == NVML_SUCCESS)
        *histogram = (struct row_remapper_histogram){(unsigned)banks[0], (unsigned)banks[1], (unsigned)banks[2],
                                                     (unsigned)banks[3], (unsigned)banks[4]};
    return code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetBankRemapperStatus_v1(nvmlDevice_t device, struct bank_remapper_status *status)
{
    unsigned long long banks[5];
    OPEN_DEVICE(nvmlDeviceGetBankRemapperStatus_v1, device);
    if (!status)
        return NVML_INVALID_ARGUMENT;
    if ((code = read_remaps(&call, "bank_remapper", banks, 5)) == NVML_SUCCESS)
        *status = (struct bank_remapper_status){(unsigned)banks[0], (unsigned)banks[1], (unsigned)banks[2],
                                                (unsigned)banks[3], (unsigned)banks[4]};
    return code;
}

enum { MOST_PAGES = 128 };

static nvmlReturn_t read_pages(const struct call *call, unsigned cause, unsigned long long *pages, size_t *found)
{
    char name[32];
    snprintf(name, sizeof name, "retired_pages.%u", cause);
    return gpu_numbers(call->gpu, name, pages, MOST_PAGES, found);
}

nvmlReturn_t retired_count(const struct call *call, unsigned cause, unsigned long long *count)
{
    unsigned long long pages[MOST_PAGES];
    size_t found = 0;
    nvmlReturn_t code = read_pages(call, cause, pages, &found);
    *count = found;
    return code;
}

static nvmlReturn_t give_pages(enum call_id id, nvmlDevice_t device, unsigned cause, unsigned *count,
                               unsigned long long *addresses, unsigned long long *times)
{
    unsigned long long pages[MOST_PAGES];
    size_t found;
    OPEN(call_begin_device(&call, id, device, WHOLE_GPU));
    if (cause > 1 || !count)
        return NVML_INVALID_ARGUMENT;
    if ((code = read_pages(&call, cause, pages, &found)) != NVML_SUCCESS)
        return code;
    bool fits = found <= *count && (addresses || !found);
    *count = (unsigned)found;
    if (!fits)
        return NVML_INSUFFICIENT_SIZE;
    for (size_t i = 0; i < found; i++)
        addresses[i] = pages[i];
    for (size_t i = 0; times && i < found; i++)
        times[i] = state_number(call.state, "retired_at", 0);
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count, unsigned long long *addresses)
{
    return give_pages(CALL_nvmlDeviceGetRetiredPages, device, cause, count, addresses, NULL);
}

/* The binding asks for the size with one argument too few; `times` is then whatever stood there and is not touched. */
EXPORTED nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause, unsigned *count,
                                                   unsigned long long *addresses, unsigned long long *times)
{
    return give_pages(CALL_nvmlDeviceGetRetiredPages_v2, device, cause, count, addresses, addresses ? times : NULL);
}

/* ---- limits for a cgroup ---- */

static nvmlReturn_t why_no_limits(const struct call *call, const char *name_space)
{
    unsigned long long mig[2];
    if (strtoul(state_setting(call->state, "driver", "0"), NULL, 10) < 615)
        return NVML_FUNCTION_NOT_FOUND;
    if (gpu_numbers(call->gpu, "mig_mode", mig, 2, NULL) == NVML_SUCCESS && mig[0])
        return NVML_NOT_SUPPORTED;
    return name_space && *name_space == '/' && !strchr(name_space, '\n') ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

static const struct limit *find_limit(const struct call *call, const char *name_space)
{
    for (size_t i = 0; i < call->state->limit_count; i++) {
        const struct limit *limit = &call->state->limits[i];
        if (limit->gpu == call->gpu->number && strcmp(limit->path, name_space) == 0)
            return limit;
    }
    return NULL;
}

struct wish {
    unsigned gpu;
    const struct memory_limits_set *limits;
    unsigned long long used;
};

static void replace_limit(void *context, const char *line, FILE *out)
{
    const struct wish *wish = context;
    unsigned gpu;
    int path = 0;
    if (line) {
        if (sscanf(line, "limit %u %*s %*s %*s %n", &gpu, &path) == 1 && path && gpu == wish->gpu &&
            strcmp(line + path, wish->limits->name_space) == 0)
            return;
        fprintf(out, "%s\n", line);
    } else if (wish->limits->soft || wish->limits->hard != NO_LIMIT) {
        fprintf(out, "limit %u %llu %llu %llu %s\n", wish->gpu, wish->limits->soft, wish->limits->hard, wish->used,
                wish->limits->name_space);
    }
}

EXPORTED nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const struct memory_limits_set *limits)
{
    unsigned long long memory;
    OPEN_DEVICE(nvmlDeviceSetMemoryLimits_v1, device);
    if (!limits)
        return NVML_INVALID_ARGUMENT;
    if ((code = why_no_limits(&call, limits->name_space)) != NVML_SUCCESS)
        return code;
    if (geteuid() != 0)
        return NVML_NO_PERMISSION;
    if ((code = gpu_numbers(call.gpu, "memory", &memory, 1, NULL)) != NVML_SUCCESS)
        return code;
    if (limits->soft > limits->hard || (limits->hard != NO_LIMIT && limits->hard > memory))
        return NVML_INVALID_ARGUMENT;
    int folder = open(limits->name_space, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return NVML_OPERATING_SYSTEM;
    close(folder);
    const struct limit *before = find_limit(&call, limits->name_space);
    struct wish wish = {call.gpu->number, limits, before ? before->used : 0};
    return state_edit(replace_limit, &wish);
}

EXPORTED nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, struct memory_limits_get *limits)
{
    OPEN_DEVICE(nvmlDeviceGetMemoryLimits_v1, device);
    if (!limits)
        return NVML_INVALID_ARGUMENT;
    if ((code = why_no_limits(&call, limits->name_space)) != NVML_SUCCESS)
        return code;
    const struct limit *found = find_limit(&call, limits->name_space);
    if (!found)
        return NVML_NOT_FOUND;
    limits->soft = found->soft;
    limits->hard = found->hard;
    limits->used = found->used;
    return NVML_SUCCESS;
}
