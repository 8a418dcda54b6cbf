/* Event sets: only what happens after a registration is delivered; a lost GPU makes every wait fail at once. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"

/* Looking is one stat. inotify would tell sooner, but closing it takes the kernel tens of milliseconds. */
enum { LOOK_AGAIN_MS = 50, MOST_MEMBERS = MOST_GPUS };

struct member {
    int gpu;
    nvmlDevice_t device;
    unsigned long long bits, seen; /* seen: number of the last event that is not for it any more */
};

struct event_set {
    struct event_set *next;
    pthread_mutex_t lock;
    atomic_uint users;
    atomic_bool freed;
    bool of_system;
    struct member members[MOST_MEMBERS];
    unsigned member_count;
};

static struct event_set *sets;
static pthread_mutex_t sets_lock = PTHREAD_MUTEX_INITIALIZER;

static void put_down(struct event_set *set)
{
    if (atomic_fetch_sub(&set->users, 1) > 1)
        return;
    pthread_mutex_destroy(&set->lock);
    free(set);
}

static struct event_set *pick_up(struct event_set *wanted, bool of_system)
{
    pthread_mutex_lock(&sets_lock);
    struct event_set *set = sets;
    while (set && set != wanted)
        set = set->next;
    if (set && set->of_system != of_system)
        set = NULL;
    if (set)
        atomic_fetch_add(&set->users, 1);
    pthread_mutex_unlock(&sets_lock);
    return set;
}

static nvmlReturn_t create(bool of_system, struct event_set **created)
{
    struct event_set *set = calloc(1, sizeof *set);
    if (!set)
        return NVML_MEMORY;
    pthread_mutex_init(&set->lock, NULL);
    atomic_init(&set->users, 1);
    set->of_system = of_system;
    pthread_mutex_lock(&sets_lock);
    set->next = sets;
    sets = set;
    pthread_mutex_unlock(&sets_lock);
    *created = set;
    return NVML_SUCCESS;
}

static bool release(struct event_set *wanted, bool of_system)
{
    pthread_mutex_lock(&sets_lock);
    struct event_set **place = &sets;
    while (*place && (*place != wanted || wanted->of_system != of_system))
        place = &(*place)->next;
    struct event_set *set = *place;
    if (set)
        *place = set->next;
    pthread_mutex_unlock(&sets_lock);
    if (set) {
        atomic_store(&set->freed, true);
        put_down(set);
    }
    return set != NULL;
}

void events_forget(void)
{
    while (sets && release(sets, sets->of_system))
        ;
}

static nvmlReturn_t enlist(struct event_set *set, int gpu, nvmlDevice_t device, unsigned long long bits, unsigned long long seen)
{
    nvmlReturn_t code = NVML_SUCCESS;
    pthread_mutex_lock(&set->lock);
    unsigned place = 0;
    while (place < set->member_count && set->members[place].gpu != gpu)
        place++;
    if (place == MOST_MEMBERS) {
        code = NVML_MEMORY;
    } else if (place < set->member_count) {
        set->members[place].bits |= bits;
    } else {
        set->members[place] = (struct member){gpu, device, bits, seen};
        set->member_count++;
    }
    pthread_mutex_unlock(&set->lock);
    return code;
}

/* The oldest event that a member of the set waits for; it counts as seen from then on. */
static bool next_event(struct event_set *set, const struct state *state, struct event *found, nvmlDevice_t *device)
{
    bool any = false;
    pthread_mutex_lock(&set->lock);
    for (size_t i = 0; !any && i < state->event_count; i++) {
        const struct event *event = &state->events[i];
        for (unsigned m = 0; !any && m < set->member_count; m++) {
            struct member *member = &set->members[m];
            if (event->of_system != set->of_system || (!set->of_system && member->gpu != event->gpu) ||
                event->number <= member->seen)
                continue;
            member->seen = event->number;
            any = (event->bit & member->bits) != 0;
            if (any) {
                *found = *event;
                *device = member->device;
            }
        }
    }
    pthread_mutex_unlock(&set->lock);
    return any;
}

static bool holds_lost_gpu(struct event_set *set, const struct state *state)
{
    bool lost = false;
    pthread_mutex_lock(&set->lock);
    for (unsigned m = 0; m < set->member_count; m++) {
        const struct gpu *gpu = gpu_by_number(state, set->members[m].gpu);
        lost = lost || (gpu && gpu_flag(gpu, "lost"));
    }
    pthread_mutex_unlock(&set->lock);
    return lost;
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static nvmlReturn_t wait_for_event(struct call *call, struct event_set *set, unsigned timeout_ms, struct event *found,
                                   nvmlDevice_t *device)
{
    const long long deadline = now_ms() + timeout_ms;
    for (;;) {
        if (atomic_load(&set->freed) || !initialised())
            return NVML_UNINITIALIZED;
        nvmlReturn_t code = driver_answers(call->state);
        if (code != NVML_SUCCESS)
            return code;
        if (next_event(set, call->state, found, device))
            return NVML_SUCCESS;
        if (!set->of_system && holds_lost_gpu(set, call->state))
            return NVML_GPU_IS_LOST;
        const long long left = deadline - now_ms();
        if (left <= 0)
            return NVML_TIMEOUT;
        sleep_ms(left < LOOK_AGAIN_MS ? (unsigned)left : LOOK_AGAIN_MS);
        state_give_back(call->state);
        call->state = state_take();
    }
}

/* ---- of GPUs ---- */

EXPORTED nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    OPEN(call_begin(&call, CALL_nvmlEventSetCreate));
    return set ? create(false, set) : NVML_INVALID_ARGUMENT;
}

EXPORTED nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    OPEN(call_begin(&call, CALL_nvmlEventSetFree));
    return release(set, false) ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

EXPORTED nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    OPEN_DEVICE(nvmlDeviceGetSupportedEventTypes, device);
    return types ? gpu_numbers(call.gpu, "event_types", types, 1, NULL) : NVML_INVALID_ARGUMENT;
}

EXPORTED nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t wanted)
{
    unsigned long long supported;
    OPEN_DEVICE(nvmlDeviceRegisterEvents, device);
    if ((code = gpu_numbers(call.gpu, "event_types", &supported, 1, NULL)) != NVML_SUCCESS)
        return code;
    if (types & ~supported)
        return NVML_NOT_SUPPORTED; /* one such bit, and nothing is registered */
    struct event_set *set = pick_up(wanted, false);
    if (!set)
        return NVML_INVALID_ARGUMENT;
    code = enlist(set, (int)call.gpu->number, device, types, state_number(call.state, "last_event", 0));
    put_down(set);
    return code;
}

EXPORTED nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t wanted, struct event_data *data, unsigned timeout_ms)
{
    struct event event;
    nvmlDevice_t device;
    OPEN(call_begin(&call, CALL_nvmlEventSetWait_v2));
    struct event_set *set = data ? pick_up(wanted, false) : NULL;
    if (!set)
        return NVML_INVALID_ARGUMENT;
    code = wait_for_event(&call, set, timeout_ms, &event, &device);
    if (code == NVML_SUCCESS)
        *data = (struct event_data){device, event.bit, event.data, event.gpu_instance, event.compute_instance};
    put_down(set);
    return code;
}

/* ---- of the system: a driver bound to a GPU or unbound ---- */

EXPORTED nvmlReturn_t nvmlSystemEventSetCreate(struct system_event_set_request *request)
{
    OPEN(call_begin(&call, CALL_nvmlSystemEventSetCreate));
    if (!request)
        return NVML_INVALID_ARGUMENT;
    if (request->version != STRUCT_VERSION(*request, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    return create(true, &request->set);
}

EXPORTED nvmlReturn_t nvmlSystemEventSetFree(struct system_event_set_request *request)
{
    OPEN(call_begin(&call, CALL_nvmlSystemEventSetFree));
    if (request && request->version != STRUCT_VERSION(*request, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    return request && release(request->set, true) ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

EXPORTED nvmlReturn_t nvmlSystemRegisterEvents(struct system_register_request *request)
{
    OPEN(call_begin(&call, CALL_nvmlSystemRegisterEvents));
    if (!request || !request->types || request->types & ~3ULL)
        return NVML_INVALID_ARGUMENT;
    if (request->version != STRUCT_VERSION(*request, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    struct event_set *set = pick_up(request->set, true);
    if (!set)
        return NVML_INVALID_ARGUMENT;
    code = enlist(set, ANY, NULL, request->types, state_number(call.state, "last_event", 0));
    put_down(set);
    return code;
}

/* What the driver calls a GPU in these events: its PCI address as one number. */
static unsigned gpu_id(const struct state *state, int number)
{
    unsigned domain = 0, bus = 0, device = 0;
    const struct gpu *gpu = gpu_by_number(state, number);
    const char *address = gpu ? gpu_attribute(gpu, "pci") : NULL;
    if (address)
        sscanf(address, "%x:%x:%x", &domain, &bus, &device);
    return domain << 16 | bus << 8 | device;
}

EXPORTED nvmlReturn_t nvmlSystemEventSetWait(struct system_wait_request *request)
{
    struct event event;
    nvmlDevice_t device;
    OPEN(call_begin(&call, CALL_nvmlSystemEventSetWait));
    if (!request || !request->data || !request->data_size)
        return NVML_INVALID_ARGUMENT;
    if (request->version != STRUCT_VERSION(*request, 1))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    struct event_set *set = pick_up(request->set, true);
    if (!set)
        return NVML_INVALID_ARGUMENT;
    request->found = 0;
    code = wait_for_event(&call, set, request->timeout_ms, &event, &device);
    while (code == NVML_SUCCESS) {
        request->data[request->found++] = (struct system_event_data){event.bit, gpu_id(call.state, event.gpu)};
        if (request->found == request->data_size || !next_event(set, call.state, &event, &device))
            break;
    }
    put_down(set);
    return code;
}
