/* What every exported function does first and last: count the call, hang or answer as the state says, find its GPU. */
#ifndef CALL_H
#define CALL_H

#include "state.h"

#define EXPORTED __attribute__((visibility("default")))

enum call_id {
#define CALL(name) CALL_##name,
#include "calls.def"
#undef CALL
    CALLS
};

static const unsigned NO_INSTANCE = 0xffffffff; /* not attributable to a MIG instance */

struct mig {
    unsigned slot, gpu_instance, compute_instance, gpu_slices, compute_slices, multiprocessors;
    unsigned long long memory_mib;
    char uuid[96];
};

struct call {
    enum call_id id;
    struct state *state;
    const struct gpu *gpu;
    bool is_mig;
    struct mig mig;
};

/* Which handles a call takes. */
enum handles { WHOLE_GPU, ANY_DEVICE };

/* Begin a call to no GPU, or to one. Other than Success: give that back at once. Always ends with call_end. */
nvmlReturn_t call_begin(struct call *call, enum call_id id);
nvmlReturn_t call_begin_device(struct call *call, enum call_id id, nvmlDevice_t device, enum handles handles);
/* Begin a call that looks for a GPU: it is found first, so that the call counts as one to it and its rules hold. */
typedef const struct gpu *(*call_search)(const struct state *state, const void *key);
nvmlReturn_t call_begin_lookup(struct call *call, enum call_id id, call_search find, const void *key);
void call_end(struct call *call);

/* Begin in the function's first lines; call_end comes by itself. */
#define OPEN(begin) \
    __attribute__((cleanup(call_end))) struct call call = {0}; \
    nvmlReturn_t code = (begin); \
    if (code != NVML_SUCCESS) \
        return code
#define OPEN_DEVICE(name, device) OPEN(call_begin_device(&call, CALL_##name, device, WHOLE_GPU))
#define OPEN_ANY_DEVICE(name, device) OPEN(call_begin_device(&call, CALL_##name, device, ANY_DEVICE))

/* GPUs in NVML's order; NULL past the last. A GPU that is not present is in none of them. */
const struct gpu *gpu_by_index(const struct state *state, unsigned index);
const struct gpu *gpu_by_number(const struct state *state, int number);
const struct gpu *gpu_by_uuid(const struct state *state, const char *uuid);
unsigned gpu_index(const struct state *state, const struct gpu *gpu);

/* The MIG device in `slot`; false for a hole. */
bool mig_in_slot(const struct gpu *gpu, unsigned slot, struct mig *mig);
bool mig_by_uuid(const struct gpu *gpu, const char *uuid, struct mig *mig);
bool mig_exists(const struct gpu *gpu);

/* The handle of a GPU or of one of its MIG devices: the same pointer for the same UUID as long as the process lives. */
nvmlReturn_t handle_of(const struct gpu *gpu, const struct mig *mig, nvmlDevice_t *device);

/* Copy a text as NVML does: InsufficientSize where it does not fit. */
nvmlReturn_t copy_text(const char *text, char *buffer, unsigned length);
/* An attribute of the call's GPU into a caller's buffer or number. */
nvmlReturn_t give_text(const struct call *call, const char *name, char *buffer, unsigned length);
nvmlReturn_t give_uint(const struct call *call, const char *name, unsigned *value);

/* DriverNotLoaded without state or driver, LibRmVersionMismatch after an upgrade under this process. */
nvmlReturn_t driver_answers(const struct state *state);
/* Whether the library is initialised, by how many. */
bool initialised(void);
void sleep_ms(unsigned milliseconds);
/* At the last shutdown. */
void events_forget(void);

#endif
