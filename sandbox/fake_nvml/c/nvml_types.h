/* What crosses the border to nvidia-ml-py: codes and structs, laid out as its ctypes classes are (a test compares sizes). */
#ifndef NVML_TYPES_H
#define NVML_TYPES_H

#include <stdint.h>

typedef int nvmlReturn_t;
enum {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_TIMEOUT = 10,
    NVML_FUNCTION_NOT_FOUND = 13,
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
    NVML_OPERATING_SYSTEM = 17,
    NVML_LIB_RM_VERSION_MISMATCH = 18,
    NVML_IN_USE = 19,
    NVML_MEMORY = 20,
    NVML_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_UNKNOWN = 999,
};

/* What NVML calls a code. */
const char *code_text(nvmlReturn_t code);

/* A versioned struct carries its size and its version in its first word. */
#define STRUCT_VERSION(type, number) ((unsigned)sizeof(type) | ((unsigned)(number) << 24))

typedef struct handle *nvmlDevice_t;
typedef struct event_set *nvmlEventSet_t;
typedef struct event_set *nvmlSystemEventSet_t;

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct pci_info_ext {
    unsigned version, domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
    char bus_id[32];
};

struct platform_info {
    unsigned version;
    unsigned char ib_guid[16], chassis_serial[16];
    unsigned char slot, tray, host, peer_type, module;
};

struct memory_info {
    unsigned long long total, free, used;
};

struct memory_info_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct remapped_rows_v2 {
    unsigned correctable_active, correctable_inactive, uncorrectable_active, uncorrectable_inactive, pending, failed;
};

struct row_remapper_histogram {
    unsigned max, high, partial, low, none;
};

struct bank_remapper_status {
    unsigned active, inactive, pending, histogram_max, histogram_none;
};

struct sram_status {
    unsigned version;
    unsigned long long aggregate_parity, aggregate_sec_ded, aggregate_corrected;
    unsigned long long volatile_parity, volatile_sec_ded, volatile_corrected;
    unsigned long long bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
    unsigned threshold_exceeded;
};

struct repair_status {
    unsigned version, channel_pending, tpc_pending;
};

struct unrepairable_memory {
    unsigned version, flag;
};

struct fabric_info_v2 {
    unsigned version;
    uint8_t cluster_uuid[16];
    nvmlReturn_t status;
    uint32_t clique, state, health_mask;
};

struct fabric_info_v3 {
    unsigned version;
    uint8_t cluster_uuid[16];
    nvmlReturn_t status;
    uint32_t clique, state, health_mask;
    uint8_t health_summary;
};

enum value_type { VALUE_DOUBLE, VALUE_UINT, VALUE_ULONG, VALUE_ULONG_LONG, VALUE_LONG_LONG, VALUE_INT, VALUE_USHORT };

union value {
    double as_double;
    unsigned as_uint;
    unsigned long as_ulong;
    unsigned long long as_ulong_long;
    long long as_long_long;
    int as_int;
    unsigned short as_ushort;
};

struct field_value {
    uint32_t field, scope;
    int64_t timestamp_us, latency_us;
    uint32_t type;
    nvmlReturn_t code;
    union value value;
};

struct temperature {
    unsigned version, sensor;
    int celsius;
};

struct margin_temperature {
    unsigned version;
    int celsius;
};

struct utilization {
    unsigned gpu, memory;
};

struct device_attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    unsigned long long memory_mib;
};

struct process_info {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
};

struct process_sample {
    unsigned pid;
    unsigned long long timestamp_us;
    unsigned sm, memory, encoder, decoder;
};

struct event_data {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct system_event_set_request { /* of create and of free */
    unsigned version;
    nvmlSystemEventSet_t set;
};

struct system_register_request {
    unsigned version;
    unsigned long long types;
    nvmlSystemEventSet_t set;
};

struct system_event_data {
    unsigned long long type;
    unsigned gpu_id;
};

struct system_wait_request {
    unsigned version, timeout_ms;
    nvmlSystemEventSet_t set;
    struct system_event_data *data;
    unsigned data_size, found;
};

struct memory_limits_set {
    const char *name_space; /* absolute path of a cgroup v2 directory */
    unsigned long long soft, hard;
};

struct memory_limits_get {
    const char *name_space;
    unsigned long long soft, hard, used;
};

#endif
