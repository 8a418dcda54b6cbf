/* MIG devices, and the processes on a GPU or on one of them. */
#include <string.h>

#include "call.h"

EXPORTED nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    unsigned long long modes[2];
    OPEN_DEVICE(nvmlDeviceGetMigMode, device);
    if (!current || !pending)
        return NVML_INVALID_ARGUMENT;
    if ((code = gpu_numbers(call.gpu, "mig_mode", modes, 2, NULL)) == NVML_SUCCESS) {
        *current = (unsigned)modes[0];
        *pending = (unsigned)modes[1];
    }
    return code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    OPEN_DEVICE(nvmlDeviceGetMaxMigDeviceCount, device);
    code = give_uint(&call, "mig_most", count);
    if (code == NVML_NOT_SUPPORTED && count) {
        *count = 0; /* a board without MIG has none */
        return NVML_SUCCESS;
    }
    return code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig_device)
{
    struct mig mig;
    unsigned most = 0;
    OPEN_DEVICE(nvmlDeviceGetMigDeviceHandleByIndex, device);
    if ((code = give_uint(&call, "mig_most", &most)) != NVML_SUCCESS)
        return code;
    if (index >= most || !mig_device)
        return NVML_INVALID_ARGUMENT;
    return mig_in_slot(call.gpu, index, &mig) ? handle_of(call.gpu, &mig, mig_device) : NVML_NOT_FOUND;
}

EXPORTED nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    OPEN_ANY_DEVICE(nvmlDeviceIsMigDeviceHandle, device);
    if (!is_mig)
        return NVML_INVALID_ARGUMENT;
    *is_mig = call.is_mig;
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
    OPEN_ANY_DEVICE(nvmlDeviceGetGpuInstanceId, device);
    if (!call.is_mig)
        return NVML_NOT_SUPPORTED;
    if (!id)
        return NVML_INVALID_ARGUMENT;
    *id = call.mig.gpu_instance;
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id)
{
    OPEN_ANY_DEVICE(nvmlDeviceGetComputeInstanceId, device);
    if (!call.is_mig)
        return NVML_NOT_SUPPORTED;
    if (!id)
        return NVML_INVALID_ARGUMENT;
    *id = call.mig.compute_instance;
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device, nvmlDevice_t *device)
{
    OPEN_ANY_DEVICE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig_device);
    return call.is_mig && device ? handle_of(call.gpu, NULL, device) : NVML_INVALID_ARGUMENT;
}

EXPORTED nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, struct device_attributes *attributes)
{
    OPEN_ANY_DEVICE(nvmlDeviceGetAttributes_v2, device);
    if (!call.is_mig)
        return NVML_NOT_SUPPORTED;
    if (!attributes)
        return NVML_INVALID_ARGUMENT;
    *attributes = (struct device_attributes){
        .multiprocessors = call.mig.multiprocessors,
        .copy_engines = call.mig.gpu_slices,
        .gpu_slices = call.mig.gpu_slices,
        .compute_slices = call.mig.compute_slices,
        .memory_mib = call.mig.memory_mib,
    };
    return NVML_SUCCESS;
}

/* ---- processes: attributes process.KIND.PID with memory in bytes, GI and CI ---- */

static nvmlReturn_t give_processes(enum call_id id, nvmlDevice_t device, char kind, unsigned *count, struct process_info *processes)
{
    OPEN(call_begin_device(&call, id, device, ANY_DEVICE));
    if (!count)
        return NVML_INVALID_ARGUMENT;
    unsigned found = 0, room = processes ? *count : 0;
    for (size_t i = 0; i < call.gpu->count; i++) {
        const struct pair *pair = &call.gpu->attributes[i];
        struct process_info one = {0, 0, NO_INSTANCE, NO_INSTANCE};
        char own;
        if (sscanf(pair->key, "process.%c.%u", &own, &one.pid) != 2 || own != kind)
            continue;
        sscanf(pair->value, "%llu %u %u", &one.used_memory, &one.gpu_instance, &one.compute_instance);
        if (call.is_mig &&
            (one.gpu_instance != call.mig.gpu_instance || one.compute_instance != call.mig.compute_instance))
            continue;
        if (found < room)
            processes[found] = one;
        found++;
    }
    *count = found;
    return found > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process_info *processes)
{
    return give_processes(CALL_nvmlDeviceGetComputeRunningProcesses_v3, device, 'c', count, processes);
}

EXPORTED nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process_info *processes)
{
    return give_processes(CALL_nvmlDeviceGetGraphicsRunningProcesses_v3, device, 'g', count, processes);
}

EXPORTED nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process_info *processes)
{
    return give_processes(CALL_nvmlDeviceGetMPSComputeRunningProcesses_v3, device, 'm', count, processes);
}

/* Samples stand as utilization.PID: time in us, then percent of SM, memory, encoder, decoder. */
EXPORTED nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct process_sample *samples, unsigned *count,
                                                      unsigned long long last_seen_us)
{
    OPEN_DEVICE(nvmlDeviceGetProcessUtilization, device);
    if (!count)
        return NVML_INVALID_ARGUMENT;
    if (mig_exists(call.gpu))
        return NVML_NOT_SUPPORTED;
    unsigned found = 0, room = samples ? *count : 0;
    for (size_t i = 0; i < call.gpu->count; i++) {
        const struct pair *pair = &call.gpu->attributes[i];
        struct process_sample one = {0};
        if (sscanf(pair->key, "utilization.%u", &one.pid) != 1 ||
            sscanf(pair->value, "%llu %u %u %u %u", &one.timestamp_us, &one.sm, &one.memory, &one.encoder, &one.decoder) < 3 ||
            one.timestamp_us <= last_seen_us)
            continue;
        if (found < room)
            samples[found] = one;
        found++;
    }
    *count = found;
    if (!found)
        return NVML_NOT_FOUND;
    return found > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
