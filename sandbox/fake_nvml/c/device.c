/* Who a GPU is, and its plain readings: each is an attribute of the state under a name of ours. */
#include <string.h>

#include "call.h"

static nvmlReturn_t give_one_uint(enum call_id id, nvmlDevice_t device, const char *name, unsigned *value)
{
    OPEN(call_begin_device(&call, id, device, WHOLE_GPU));
    return give_uint(&call, name, value);
}

#define READS_UINT(name, attribute) \
    EXPORTED nvmlReturn_t name(nvmlDevice_t device, unsigned *value) \
    { \
        return give_one_uint(CALL_##name, device, attribute, value); \
    }

READS_UINT(nvmlDeviceGetMinorNumber, "minor")
READS_UINT(nvmlDeviceGetArchitecture, "architecture")
READS_UINT(nvmlDeviceGetBrand, "brand")
READS_UINT(nvmlDeviceGetBusType, "bus_type")
READS_UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
READS_UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")
READS_UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_generation_gpu_max")
READS_UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
READS_UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
READS_UINT(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
READS_UINT(nvmlDeviceGetPcieSpeed, "pcie_speed_mbps")
READS_UINT(nvmlDeviceGetPcieLinkMaxSpeed, "pcie_speed_max")
READS_UINT(nvmlDeviceGetPerformanceState, "pstate")
READS_UINT(nvmlDeviceGetPersistenceMode, "persistence")
READS_UINT(nvmlDeviceGetPowerUsage, "power_mw")
READS_UINT(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
READS_UINT(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")

static nvmlReturn_t give_one_text(enum call_id id, nvmlDevice_t device, const char *name, char *buffer, unsigned length)
{
    OPEN(call_begin_device(&call, id, device, WHOLE_GPU));
    return give_text(&call, name, buffer, length);
}

#define READS_TEXT(name, attribute) \
    EXPORTED nvmlReturn_t name(nvmlDevice_t device, char *buffer, unsigned length) \
    { \
        return give_one_text(CALL_##name, device, attribute, buffer, length); \
    }

READS_TEXT(nvmlDeviceGetSerial, "serial")
READS_TEXT(nvmlDeviceGetBoardPartNumber, "part_number")
READS_TEXT(nvmlDeviceGetVbiosVersion, "vbios")

EXPORTED nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *buffer, unsigned length)
{
    char name[160];
    const char *model;
    OPEN_ANY_DEVICE(nvmlDeviceGetName, device);
    if (!call.is_mig)
        return give_text(&call, "name", buffer, length);
    if ((code = gpu_text(call.gpu, "name", &model)) != NVML_SUCCESS)
        return code;
    snprintf(name, sizeof name, "%s MIG %ug.%llugb", model, call.mig.gpu_slices, (call.mig.memory_mib + 1023) / 1024);
    return copy_text(name, buffer, length);
}

EXPORTED nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *buffer, unsigned length)
{
    OPEN_ANY_DEVICE(nvmlDeviceGetUUID, device);
    return call.is_mig ? copy_text(call.mig.uuid, buffer, length) : give_text(&call, "uuid", buffer, length);
}

EXPORTED nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    OPEN_ANY_DEVICE(nvmlDeviceGetIndex, device);
    if (!index)
        return NVML_INVALID_ARGUMENT;
    *index = call.is_mig ? call.mig.slot : gpu_index(call.state, call.gpu);
    return NVML_SUCCESS;
}

struct address {
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};

static nvmlReturn_t read_address(const struct call *call, struct address *address)
{
    unsigned long long ids[2];
    const char *text;
    nvmlReturn_t code = gpu_text(call->gpu, "pci", &text);
    if (code == NVML_SUCCESS)
        code = gpu_numbers(call->gpu, "pci_ids", ids, 2, NULL);
    if (code != NVML_SUCCESS)
        return code;
    if (sscanf(text, "%x:%x:%x", &address->domain, &address->bus, &address->device) != 3)
        return NVML_UNKNOWN;
    address->id = (unsigned)ids[0];
    address->subsystem = (unsigned)ids[1];
    snprintf(address->text, sizeof address->text, "%08X:%02X:%02X.0", address->domain, address->bus, address->device);
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci_info *info)
{
    struct address at;
    OPEN_DEVICE(nvmlDeviceGetPciInfo_v3, device);
    if (!info)
        return NVML_INVALID_ARGUMENT;
    if ((code = read_address(&call, &at)) != NVML_SUCCESS)
        return code;
    memset(info, 0, sizeof *info);
    info->domain = at.domain;
    info->bus = at.bus;
    info->device = at.device;
    info->pci_device_id = at.id;
    info->pci_subsystem_id = at.subsystem;
    memcpy(info->bus_id, at.text, sizeof info->bus_id);
    memcpy(info->bus_id_legacy, at.text + 4, sizeof info->bus_id_legacy - 1); /* four digits of domain */
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, struct pci_info_ext *info)
{
    struct address at;
    OPEN_DEVICE(nvmlDeviceGetPciInfoExt, device);
    if (!info)
        return NVML_INVALID_ARGUMENT;
    if (info->version != STRUCT_VERSION(struct pci_info_ext, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    if ((code = read_address(&call, &at)) != NVML_SUCCESS)
        return code;
    info->domain = at.domain;
    info->bus = at.bus;
    info->device = at.device;
    info->pci_device_id = at.id;
    info->pci_subsystem_id = at.subsystem;
    info->base_class = 3; /* display controller, */
    info->sub_class = 2;  /* 3D */
    memcpy(info->bus_id, at.text, sizeof info->bus_id);
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, struct platform_info *info)
{
    unsigned long long places[5];
    OPEN_DEVICE(nvmlDeviceGetPlatformInfo, device);
    if (!info)
        return NVML_INVALID_ARGUMENT;
    if (info->version != STRUCT_VERSION(struct platform_info, 1) && info->version != STRUCT_VERSION(struct platform_info, 2))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    if ((code = gpu_numbers(call.gpu, "platform", places, 5, NULL)) != NVML_SUCCESS)
        return code;
    unsigned version = info->version;
    memset(info, 0, sizeof *info);
    info->version = version;
    info->slot = (unsigned char)places[0];
    info->tray = (unsigned char)places[1];
    info->host = (unsigned char)places[2];
    info->peer_type = (unsigned char)places[3];
    info->module = (unsigned char)places[4];
    return NVML_SUCCESS;
}

static nvmlReturn_t give_mask(enum call_id id, nvmlDevice_t device, const char *name, unsigned long long *mask)
{
    OPEN(call_begin_device(&call, id, device, WHOLE_GPU));
    return mask ? gpu_numbers(call.gpu, name, mask, 1, NULL) : NVML_INVALID_ARGUMENT;
}

EXPORTED nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    return give_mask(CALL_nvmlDeviceGetCurrentClocksEventReasons, device, "clocks_event_reasons", reasons);
}

EXPORTED nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    return give_mask(CALL_nvmlDeviceGetSupportedClocksEventReasons, device, "clocks_event_reasons_supported", reasons);
}

EXPORTED nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius)
{
    OPEN_DEVICE(nvmlDeviceGetTemperature, device);
    return sensor == 0 ? give_uint(&call, "temperature", celsius) : NVML_INVALID_ARGUMENT;
}

EXPORTED nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature *reading)
{
    OPEN_DEVICE(nvmlDeviceGetTemperatureV, device);
    if (!reading || reading->sensor != 0)
        return NVML_INVALID_ARGUMENT;
    if (reading->version != STRUCT_VERSION(struct temperature, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    return give_uint(&call, "temperature", (unsigned *)&reading->celsius);
}

EXPORTED nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned threshold, unsigned *celsius)
{
    unsigned long long limits[4]; /* shutdown, slowdown, most for the memory, most for the GPU */
    OPEN_DEVICE(nvmlDeviceGetTemperatureThreshold, device);
    if (threshold >= 4 || !celsius)
        return NVML_INVALID_ARGUMENT;
    if ((code = gpu_numbers(call.gpu, "temperature_thresholds", limits, 4, NULL)) == NVML_SUCCESS)
        *celsius = (unsigned)limits[threshold];
    return code;
}

EXPORTED nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, struct margin_temperature *margin)
{
    OPEN_DEVICE(nvmlDeviceGetMarginTemperature, device);
    if (!margin)
        return NVML_INVALID_ARGUMENT;
    if (margin->version != STRUCT_VERSION(struct margin_temperature, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    return give_uint(&call, "temperature_margin", (unsigned *)&margin->celsius);
}

/* Only the clock of the multiprocessors (type 1) is played. */
static nvmlReturn_t give_clock(enum call_id id, nvmlDevice_t device, unsigned type, const char *name, unsigned *mhz)
{
    OPEN(call_begin_device(&call, id, device, WHOLE_GPU));
    if (type > 3)
        return NVML_INVALID_ARGUMENT;
    return type == 1 ? give_uint(&call, name, mhz) : NVML_NOT_SUPPORTED;
}

EXPORTED nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    return give_clock(CALL_nvmlDeviceGetClockInfo, device, type, "clock_sm", mhz);
}

EXPORTED nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    return give_clock(CALL_nvmlDeviceGetMaxClockInfo, device, type, "clock_sm_max", mhz);
}

EXPORTED nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    return give_clock(CALL_nvmlDeviceGetApplicationsClock, device, type, "clock_sm_application", mhz);
}

EXPORTED nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct utilization *rates)
{
    unsigned long long percent[2];
    OPEN_DEVICE(nvmlDeviceGetUtilizationRates, device);
    if (mig_exists(call.gpu))
        return NVML_NOT_SUPPORTED;
    if (!rates)
        return NVML_INVALID_ARGUMENT;
    if ((code = gpu_numbers(call.gpu, "utilization", percent, 2, NULL)) == NVML_SUCCESS)
        *rates = (struct utilization){(unsigned)percent[0], (unsigned)percent[1]};
    return code;
}
