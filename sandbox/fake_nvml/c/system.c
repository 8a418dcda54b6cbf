/* The driver as a whole, and how its GPUs are found. */
#include <ctype.h>
#include <string.h>

#include "call.h"

EXPORTED const char *nvmlErrorString(nvmlReturn_t code)
{
    return code_text(code);
}

static nvmlReturn_t give_setting(enum call_id id, const char *key, char *buffer, unsigned length)
{
    OPEN(call_begin(&call, id));
    return copy_text(state_setting(call.state, key, ""), buffer, length);
}

EXPORTED nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return give_setting(CALL_nvmlSystemGetDriverVersion, "driver", version, length);
}

EXPORTED nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    return give_setting(CALL_nvmlSystemGetNVMLVersion, "nvml", version, length);
}

EXPORTED nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    OPEN(call_begin(&call, CALL_nvmlSystemGetCudaDriverVersion_v2));
    if (!version)
        return NVML_INVALID_ARGUMENT;
    *version = (int)state_number(call.state, "cuda", 0);
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    OPEN(call_begin(&call, CALL_nvmlDeviceGetCount_v2));
    if (!count)
        return NVML_INVALID_ARGUMENT;
    for (*count = 0; gpu_by_index(call.state, *count);)
        ++*count;
    return NVML_SUCCESS;
}

/* ---- looking up ---- */

static const struct gpu *by_index(const struct state *state, const void *index)
{
    return gpu_by_index(state, *(const unsigned *)index);
}

/* The GPU of that UUID, or the one that a MIG device of that UUID is a part of. */
static const struct gpu *by_uuid(const struct state *state, const void *uuid)
{
    struct mig mig;
    const struct gpu *found = gpu_by_uuid(state, uuid);
    for (unsigned i = 0; !found; i++) {
        const struct gpu *gpu = gpu_by_index(state, i);
        if (!gpu)
            break;
        if (mig_by_uuid(gpu, uuid, &mig))
            found = gpu;
    }
    return found;
}

/* An address may lack its domain or have four digits of it. */
static bool same_address(const char *left, const char *right)
{
    unsigned a[4] = {0}, b[4] = {0};
    sscanf(left, "%x:%x:%x.%x", &a[0], &a[1], &a[2], &a[3]);
    if (sscanf(right, "%x:%x:%x.%x", &b[0], &b[1], &b[2], &b[3]) < 4) {
        b[0] = 0;
        if (sscanf(right, "%x:%x.%x", &b[1], &b[2], &b[3]) < 3)
            return false;
    }
    return memcmp(a, b, sizeof a) == 0;
}

static const struct gpu *by_address(const struct state *state, const void *address)
{
    for (unsigned i = 0;; i++) {
        const struct gpu *gpu = gpu_by_index(state, i);
        const char *own = gpu ? gpu_attribute(gpu, "pci") : NULL;
        if (!gpu || (own && same_address(own, address)))
            return gpu;
    }
}

EXPORTED nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    OPEN(call_begin_lookup(&call, CALL_nvmlDeviceGetHandleByIndex_v2, by_index, &index));
    return call.gpu && device ? handle_of(call.gpu, NULL, device) : NVML_INVALID_ARGUMENT;
}

EXPORTED nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    struct mig mig;
    OPEN(call_begin_lookup(&call, CALL_nvmlDeviceGetHandleByUUID, by_uuid, uuid));
    if (!uuid || !device)
        return NVML_INVALID_ARGUMENT;
    if (!call.gpu)
        return NVML_NOT_FOUND;
    return handle_of(call.gpu, mig_by_uuid(call.gpu, uuid, &mig) ? &mig : NULL, device);
}

EXPORTED nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device)
{
    OPEN(call_begin_lookup(&call, CALL_nvmlDeviceGetHandleByPciBusId_v2, by_address, address));
    if (!address || !device)
        return NVML_INVALID_ARGUMENT;
    return call.gpu ? handle_of(call.gpu, NULL, device) : NVML_NOT_FOUND;
}
