/* NVLink and its fabric. */
#include <string.h>

#include "links.h"

nvmlReturn_t links_read(const struct gpu *gpu, unsigned long long states[MOST_LINKS], size_t *count)
{
    nvmlReturn_t code = gpu_numbers(gpu, "nvlink_states", states, MOST_LINKS, count);
    if (code == NVML_SUCCESS && *count == 0)
        return NVML_NOT_SUPPORTED;
    if (mig_exists(gpu))
        memset(states, 0, MOST_LINKS * sizeof *states); /* links read as down while MIG is in use */
    return code;
}

nvmlReturn_t links_need(const struct gpu *gpu, unsigned long link)
{
    unsigned long long states[MOST_LINKS];
    size_t count;
    nvmlReturn_t code = links_read(gpu, states, &count);
    return code == NVML_SUCCESS && link >= count ? NVML_INVALID_ARGUMENT : code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active)
{
    unsigned long long states[MOST_LINKS];
    size_t count;
    OPEN_DEVICE(nvmlDeviceGetNvLinkState, device);
    if ((code = links_read(call.gpu, states, &count)) != NVML_SUCCESS)
        return code;
    if (link >= count || !active)
        return NVML_INVALID_ARGUMENT;
    *active = states[link] != 0;
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned *version)
{
    OPEN_DEVICE(nvmlDeviceGetNvLinkVersion, device);
    if ((code = links_need(call.gpu, link)) != NVML_SUCCESS)
        return code;
    return give_uint(&call, "nvlink_version", version);
}

/* Says yes for all 36, whatever the GPU has: a known trap. */
EXPORTED nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned link, unsigned capability, unsigned *result)
{
    OPEN_DEVICE(nvmlDeviceGetNvLinkCapability, device);
    if ((code = links_need(call.gpu, 0)) != NVML_SUCCESS)
        return code;
    if (link >= MOST_LINKS || capability > 5 || !result)
        return NVML_INVALID_ARGUMENT;
    *result = 1;
    return NVML_SUCCESS;
}

/* nvlink_errors.COUNTER lists a number for each link: replay, recovery, CRC flit, CRC data, ECC data. */
nvmlReturn_t link_error_counter(const struct gpu *gpu, unsigned counter, unsigned long link, unsigned long long *errors)
{
    unsigned long long numbers[MOST_LINKS];
    char name[32];
    snprintf(name, sizeof name, "nvlink_errors.%u", counter);
    nvmlReturn_t code = gpu_numbers(gpu, name, numbers, MOST_LINKS, NULL);
    if (code == NVML_SUCCESS)
        *errors = numbers[link];
    return code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link, unsigned counter, unsigned long long *errors)
{
    OPEN_DEVICE(nvmlDeviceGetNvLinkErrorCounter, device);
    if ((code = links_need(call.gpu, link)) != NVML_SUCCESS)
        return code;
    if (counter > 4 || !errors)
        return NVML_INVALID_ARGUMENT;
    return link_error_counter(call.gpu, counter, link, errors);
}

EXPORTED nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *type)
{
    OPEN_DEVICE(nvmlDeviceGetNvLinkRemoteDeviceType, device);
    if ((code = links_need(call.gpu, link)) != NVML_SUCCESS)
        return code;
    return give_uint(&call, "nvlink_remote_type", type);
}

EXPORTED nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, struct pci_info *info)
{
    const char *text;
    OPEN_DEVICE(nvmlDeviceGetNvLinkRemotePciInfo_v2, device);
    if ((code = links_need(call.gpu, link)) != NVML_SUCCESS)
        return code;
    if (!info)
        return NVML_INVALID_ARGUMENT;
    if ((code = gpu_text(call.gpu, "nvlink_remote_pci", &text)) != NVML_SUCCESS)
        return code;
    memset(info, 0, sizeof *info);
    sscanf(text, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain & 0xffff, info->bus & 0xff, info->device & 0xff);
    memcpy(info->bus_id_legacy, info->bus_id + 4, 13);
    return NVML_SUCCESS;
}

/* Attribute fabric: state, status, clique, health mask, health summary. A driver of fabric_version 2 knows no summary. */
EXPORTED nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, struct fabric_info_v3 *info)
{
    unsigned long long fabric[5];
    OPEN_DEVICE(nvmlDeviceGetGpuFabricInfoV, device);
    if (!info)
        return NVML_INVALID_ARGUMENT;
    if ((code = gpu_numbers(call.gpu, "fabric", fabric, 5, NULL)) != NVML_SUCCESS)
        return code;
    bool newest = info->version == STRUCT_VERSION(struct fabric_info_v3, 3);
    if (newest ? state_number(call.state, "fabric_version", 3) < 3 : info->version != STRUCT_VERSION(struct fabric_info_v2, 2))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    memset(info->cluster_uuid, 0, sizeof info->cluster_uuid);
    info->state = (uint32_t)fabric[0];
    info->status = (nvmlReturn_t)fabric[1];
    info->clique = (uint32_t)fabric[2];
    info->health_mask = (uint32_t)fabric[3];
    if (newest)
        info->health_summary = (uint8_t)fabric[4];
    return NVML_SUCCESS;
}
