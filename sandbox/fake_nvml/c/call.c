#include "call.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { INIT_NO_GPUS = 1, MOST_HANDLES = 512, LOOK_AGAIN_MS = 20, WAIT_FOR_RESET_MS = 5000 };

struct handle {
    char uuid[96], parent[96]; /* parent: only of a MIG device */
};

static const char *const names[] = {
#define CALL(name) #name,
#include "calls.def"
#undef CALL
};

void sleep_ms(unsigned milliseconds)
{
    struct timespec left = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&left, NULL);
}

/* ---- counting: nvml.live/calls holds a number for each call and GPU, and one column for calls to none ---- */

static atomic_ullong *counters;

static void map_counters(void)
{
    const size_t size = sizeof *counters * CALLS * (MOST_GPUS + 1);
    char path[PATH_MAX];
    struct stat about;
    int file = state_sibling("nvml.live/calls", path) ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) /* a read-only mount: nobody counts */
        return;
    if (fstat(file, &about) == 0 && about.st_size == (off_t)size) {
        void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED)
            counters = mapped;
    }
    close(file);
}

static void count(enum call_id id, int gpu)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, map_counters);
    unsigned column = gpu >= 0 && gpu < MOST_GPUS ? (unsigned)gpu : MOST_GPUS;
    if (counters)
        atomic_fetch_add(&counters[id * (MOST_GPUS + 1) + column], 1);
}

/* ---- GPUs and handles ---- */

static bool present(const struct gpu *gpu)
{
    return gpu_flag(gpu, "present");
}

const struct gpu *gpu_by_index(const struct state *state, unsigned index)
{
    for (size_t i = 0; i < state->gpu_count; i++)
        if (present(&state->gpus[i]) && index-- == 0)
            return &state->gpus[i];
    return NULL;
}

const struct gpu *gpu_by_number(const struct state *state, int number)
{
    for (size_t i = 0; i < state->gpu_count; i++)
        if ((int)state->gpus[i].number == number)
            return &state->gpus[i];
    return NULL;
}

const struct gpu *gpu_by_uuid(const struct state *state, const char *uuid)
{
    for (size_t i = 0; i < state->gpu_count; i++) {
        const char *own = gpu_attribute(&state->gpus[i], "uuid");
        if (own && strcmp(own, uuid) == 0)
            return present(&state->gpus[i]) ? &state->gpus[i] : NULL;
    }
    return NULL;
}

unsigned gpu_index(const struct state *state, const struct gpu *gpu)
{
    unsigned index = 0;
    for (const struct gpu *other = state->gpus; other < gpu; other++)
        index += present(other);
    return index;
}

static bool read_mig(const struct pair *pair, struct mig *mig)
{
    memset(mig, 0, sizeof *mig);
    return strncmp(pair->key, "mig.", 4) == 0 && sscanf(pair->key, "mig.%u", &mig->slot) == 1 &&
           sscanf(pair->value, "%95s %u %u %u %u %u %llu", mig->uuid, &mig->gpu_instance, &mig->compute_instance,
                  &mig->gpu_slices, &mig->compute_slices, &mig->multiprocessors, &mig->memory_mib) == 7;
}

bool mig_in_slot(const struct gpu *gpu, unsigned slot, struct mig *mig)
{
    for (size_t i = 0; i < gpu->count; i++)
        if (read_mig(&gpu->attributes[i], mig) && mig->slot == slot)
            return true;
    return false;
}

bool mig_by_uuid(const struct gpu *gpu, const char *uuid, struct mig *mig)
{
    for (size_t i = 0; i < gpu->count; i++)
        if (read_mig(&gpu->attributes[i], mig) && strcmp(mig->uuid, uuid) == 0)
            return true;
    return false;
}

bool mig_exists(const struct gpu *gpu)
{
    struct mig mig;
    for (size_t i = 0; i < gpu->count; i++)
        if (read_mig(&gpu->attributes[i], &mig))
            return true;
    return false;
}

static struct handle handles[MOST_HANDLES];
static atomic_uint handles_used;
static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;

nvmlReturn_t handle_of(const struct gpu *gpu, const struct mig *mig, nvmlDevice_t *device)
{
    const char *parent = gpu_attribute(gpu, "uuid"), *uuid = mig ? mig->uuid : parent;
    nvmlReturn_t code = NVML_MEMORY;
    pthread_mutex_lock(&handles_lock);
    unsigned used = atomic_load(&handles_used), place = 0;
    while (place < used && strcmp(handles[place].uuid, uuid) != 0)
        place++;
    if (place < MOST_HANDLES) {
        if (place == used) {
            snprintf(handles[place].uuid, sizeof handles[place].uuid, "%s", uuid);
            snprintf(handles[place].parent, sizeof handles[place].parent, "%s", mig ? parent : "");
            atomic_store(&handles_used, used + 1);
        }
        *device = &handles[place];
        code = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&handles_lock);
    return code;
}

static bool is_handle(nvmlDevice_t device)
{
    return device >= handles && device < handles + atomic_load(&handles_used);
}

/* ---- one call ---- */

static atomic_uint initialisations;
static atomic_int holder = -1; /* the locked file that says: a client is here */
static atomic_ullong epoch;    /* of the driver when this process loaded the library, plus one */
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

bool initialised(void)
{
    return atomic_load(&initialisations) > 0;
}

/* The library that this process mapped is the one of that moment; a later driver does not match it any more. */
static bool mismatched(const struct state *state)
{
    unsigned long long now = state_number(state, "epoch", 0) + 1, none = 0;
    atomic_compare_exchange_strong(&epoch, &none, now);
    return atomic_load(&epoch) != now;
}

__attribute__((constructor)) static void loaded(void)
{
    struct state *state = state_take();
    if (state)
        mismatched(state);
    state_forget();
    state_give_back(state);
}

/* A hang that SIGTERM does not end: the whole process ignores it while any of its threads is in one. */
static void ignore_sigterm(bool begin)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct sigaction before;
    static unsigned threads;
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    pthread_mutex_lock(&lock);
    if (begin && threads++ == 0)
        sigaction(SIGTERM, &ignored, &before);
    else if (!begin && --threads == 0)
        sigaction(SIGTERM, &before, NULL);
    pthread_mutex_unlock(&lock);
}

/* Hang for as long as the state says so; then give back the code that it wants answered, or -1. */
static int obey(struct call *call, int gpu)
{
    const struct rule *rule;
    bool blocked = false;
    while (call->state && (rule = state_rule(call->state, names[call->id], gpu, true))) {
        if (rule->value && !blocked) {
            ignore_sigterm(true);
            blocked = true;
        }
        state_give_back(call->state);
        sleep_ms(LOOK_AGAIN_MS);
        call->state = state_take();
    }
    if (blocked)
        ignore_sigterm(false);
    rule = call->state ? state_rule(call->state, names[call->id], gpu, false) : NULL;
    return rule ? rule->value : -1;
}

nvmlReturn_t driver_answers(const struct state *state)
{
    if (!state || !state_number(state, "loaded", 0))
        return NVML_DRIVER_NOT_LOADED;
    return mismatched(state) ? NVML_LIB_RM_VERSION_MISMATCH : NVML_SUCCESS;
}

/* `call` has the newest state already. */
static nvmlReturn_t begin(struct call *call, enum call_id id, int gpu)
{
    call->id = id;
    count(id, gpu);
    int wanted = obey(call, gpu);
    if (wanted > 0)
        return wanted;
    if (!initialised() && id != CALL_nvmlInitWithFlags)
        return NVML_UNINITIALIZED;
    return driver_answers(call->state);
}

nvmlReturn_t call_begin(struct call *call, enum call_id id)
{
    call->state = state_take();
    return begin(call, id, ANY);
}

/* [assumption] A GPU that must be reset still tells who it is and what it needs; nothing else. */
static bool answers_before_reset(enum call_id id)
{
    switch (id) {
    case CALL_nvmlDeviceGetHandleByIndex_v2:
    case CALL_nvmlDeviceGetHandleByUUID:
    case CALL_nvmlDeviceGetHandleByPciBusId_v2:
    case CALL_nvmlDeviceGetName:
    case CALL_nvmlDeviceGetUUID:
    case CALL_nvmlDeviceGetSerial:
    case CALL_nvmlDeviceGetMinorNumber:
    case CALL_nvmlDeviceGetIndex:
    case CALL_nvmlDeviceGetPciInfo_v3:
    case CALL_nvmlDeviceGetPciInfoExt:
    case CALL_nvmlDeviceGetFieldValues:
        return true;
    default:
        return false;
    }
}

static nvmlReturn_t gpu_answers(const struct call *call)
{
    /* An explicit Success for this call of this GPU lets it through: so one call can work on a GPU that is lost. */
    const struct rule *rule = state_rule(call->state, names[call->id], (int)call->gpu->number, false);
    if (rule && rule->value == NVML_SUCCESS)
        return NVML_SUCCESS;
    if (gpu_flag(call->gpu, "lost"))
        return NVML_GPU_IS_LOST;
    if (gpu_flag(call->gpu, "reset_required") && !answers_before_reset(call->id))
        return NVML_RESET_REQUIRED;
    return NVML_SUCCESS;
}

nvmlReturn_t call_begin_lookup(struct call *call, enum call_id id, call_search find, const void *key)
{
    call->state = state_take();
    const struct gpu *found = call->state && key ? find(call->state, key) : NULL;
    int gpu = found ? (int)found->number : ANY;
    nvmlReturn_t code = begin(call, id, gpu);
    if (code != NVML_SUCCESS || gpu == ANY)
        return code;
    call->gpu = gpu_by_number(call->state, gpu);
    return call->gpu ? gpu_answers(call) : NVML_NOT_FOUND;
}

/* The GPU that a handle means; NULL where it means none, or none any more. */
static const struct gpu *gpu_of_handle(const struct state *state, nvmlDevice_t device)
{
    return state && is_handle(device) ? gpu_by_uuid(state, *device->parent ? device->parent : device->uuid) : NULL;
}

nvmlReturn_t call_begin_device(struct call *call, enum call_id id, nvmlDevice_t device, enum handles handles_taken)
{
    call->state = state_take();
    const struct gpu *found = gpu_of_handle(call->state, device);
    nvmlReturn_t code = begin(call, id, found ? (int)found->number : ANY);
    if (code != NVML_SUCCESS)
        return code;
    call->gpu = gpu_of_handle(call->state, device); /* the state may be a newer one now */
    if (!call->gpu)
        return NVML_INVALID_ARGUMENT;
    call->is_mig = *device->parent != '\0';
    if ((code = gpu_answers(call)) != NVML_SUCCESS)
        return code;
    if (call->is_mig && !mig_by_uuid(call->gpu, device->uuid, &call->mig))
        return NVML_INVALID_ARGUMENT; /* that instance is gone */
    return call->is_mig && handles_taken == WHOLE_GPU ? NVML_NOT_SUPPORTED : NVML_SUCCESS;
}

void call_end(struct call *call)
{
    state_give_back(call->state);
    call->state = NULL;
}

nvmlReturn_t copy_text(const char *text, char *buffer, unsigned length)
{
    size_t needed = strlen(text) + 1;
    if (!buffer)
        return NVML_INVALID_ARGUMENT;
    if (needed > length)
        return NVML_INSUFFICIENT_SIZE;
    memcpy(buffer, text, needed);
    return NVML_SUCCESS;
}

nvmlReturn_t give_text(const struct call *call, const char *name, char *buffer, unsigned length)
{
    const char *text;
    nvmlReturn_t code = gpu_text(call->gpu, name, &text);
    return code == NVML_SUCCESS ? copy_text(text, buffer, length) : code;
}

nvmlReturn_t give_uint(const struct call *call, const char *name, unsigned *value)
{
    unsigned long long number;
    nvmlReturn_t code = gpu_numbers(call->gpu, name, &number, 1, NULL);
    if (!value)
        return NVML_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        *value = (unsigned)number;
    return code;
}

/* ---- init and shutdown ---- */

/* Hold a shared lock for as long as this process is a client: the kernel lets go of it however the process ends, it works on
 * a read-only mount too, and a reset asks for the exclusive one. */
static nvmlReturn_t hold(void)
{
    char path[PATH_MAX];
    int file = state_sibling("nvml.live/held", path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return NVML_SUCCESS;
    for (unsigned waited = 0; flock(file, LOCK_SH | LOCK_NB) != 0; waited += LOOK_AGAIN_MS) {
        if (waited >= WAIT_FOR_RESET_MS) {
            close(file);
            return NVML_IN_USE; /* a reset that does not end */
        }
        sleep_ms(LOOK_AGAIN_MS);
    }
    atomic_store(&holder, file);
    return NVML_SUCCESS;
}

EXPORTED nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    OPEN(call_begin(&call, CALL_nvmlInitWithFlags));
    if (flags > 7)
        return NVML_INVALID_ARGUMENT;
    if (!(flags & INIT_NO_GPUS) && !gpu_by_index(call.state, 0))
        return NVML_NOT_FOUND; /* nvidia-smi then says "No devices were found" and ends with this code */
    pthread_mutex_lock(&init_lock);
    code = initialised() ? NVML_SUCCESS : hold();
    if (code == NVML_SUCCESS)
        atomic_fetch_add(&initialisations, 1);
    pthread_mutex_unlock(&init_lock);
    return code;
}

EXPORTED nvmlReturn_t nvmlShutdown(void)
{
    __attribute__((cleanup(call_end))) struct call call = {.id = CALL_nvmlShutdown, .state = state_take()};
    count(CALL_nvmlShutdown, ANY);
    int wanted = obey(&call, ANY);
    if (wanted > 0)
        return wanted;
    pthread_mutex_lock(&init_lock);
    bool was = initialised();
    if (was && atomic_fetch_sub(&initialisations, 1) == 1) {
        int file = atomic_exchange(&holder, -1);
        if (file >= 0)
            close(file);
        events_forget();
        state_forget();
    }
    pthread_mutex_unlock(&init_lock);
    return was ? NVML_SUCCESS : NVML_UNINITIALIZED;
}
