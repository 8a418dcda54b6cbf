#include "state.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct state *newest;
static char path_used[PATH_MAX];

void state_use(const char *path)
{
    snprintf(path_used, sizeof path_used, "%s", path);
}

#ifdef BESIDE_LIBRARY
static void find_path(void)
{
    const char *asked = getenv("NODEMEND_FAKE_NVML_STATE");
    Dl_info here;
    if (asked && *asked) {
        state_use(asked);
    } else if (dladdr((void *)(uintptr_t)&state_path, &here) && here.dli_fname) {
        const char *slash = strrchr(here.dli_fname, '/');
        int length = slash ? (int)(slash - here.dli_fname) : 1;
        snprintf(path_used, sizeof path_used, "%.*s/nvml.state", length, slash ? here.dli_fname : ".");
    }
}

const char *state_path(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_path);
    return path_used;
}
#else
const char *state_path(void)
{
    return path_used;
}
#endif

bool state_sibling(const char *name, char path[PATH_MAX])
{
    const char *whole = state_path(), *slash = strrchr(whole, '/');
    int length = slash ? (int)(slash - whole) : 1;
    return snprintf(path, PATH_MAX, "%.*s/%s", length, slash ? whole : ".", name) < PATH_MAX;
}

/* ---- reading ---- */

char *state_read(int file)
{
    struct stat about;
    if (fstat(file, &about) != 0)
        return NULL;
    char *text = malloc((size_t)about.st_size + 1);
    off_t done = 0;
    while (text && done < about.st_size) {
        ssize_t now = pread(file, text + done, (size_t)(about.st_size - done), done);
        if (now > 0) {
            done += now;
        } else if (now == 0 || errno != EINTR) {
            free(text);
            return NULL;
        }
    }
    if (text)
        text[done] = '\0';
    return text;
}

/* The next word of a line, cut off in place; NULL after the last. */
static char *word(char **rest)
{
    char *start = *rest;
    if (!start || !*start)
        return NULL;
    char *space = strchr(start, ' ');
    *rest = space ? space + 1 : NULL;
    if (space)
        *space = '\0';
    return start;
}

/* An array that grows by doubling: a new, zeroed element at its end, NULL without memory. */
static void *grown(void **array, size_t *count, size_t size)
{
    if ((*count & (*count - 1)) == 0) {
        void *larger = realloc(*array, (*count ? *count * 2 : 1) * size);
        if (!larger)
            return NULL;
        *array = larger;
    }
    return memset((char *)*array + (*count)++ * size, 0, size);
}
#define GROWN(array, count) grown((void **)&(array), &(count), sizeof *(array))

static unsigned long long number(const char *text)
{
    return text ? strtoull(text, NULL, 0) : 0;
}

static int gpu_number(const char *text)
{
    return !text || *text == '*' ? ANY : (int)number(text);
}

static bool take_gpu(struct state *state, char *rest)
{
    unsigned which = (unsigned)number(word(&rest));
    struct gpu *gpu = state->gpu_count ? &state->gpus[state->gpu_count - 1] : NULL;
    if (!gpu || gpu->number != which) {
        if (!(gpu = GROWN(state->gpus, state->gpu_count)))
            return false;
        gpu->number = which;
    }
    struct pair *pair = GROWN(gpu->attributes, gpu->count);
    if (!pair)
        return false;
    pair->key = word(&rest);
    pair->value = rest ? rest : "";
    return pair->key != NULL;
}

static bool take_rule(struct state *state, char *rest)
{
    struct rule *rule = GROWN(state->rules, state->rule_count);
    if (!rule)
        return false;
    rule->call = word(&rest);
    rule->gpu = gpu_number(word(&rest));
    const char *kind = word(&rest);
    rule->hang = kind && strcmp(kind, "hang") == 0;
    rule->value = (int)number(word(&rest));
    return rule->call != NULL && kind != NULL;
}

static bool take_field(struct state *state, char *rest)
{
    static const char *const types[] = {"double", "uint", "ulong", "ulonglong", "longlong", "int", "ushort"};
    struct field *field = GROWN(state->fields, state->field_count);
    if (!field)
        return false;
    field->gpu = (unsigned)number(word(&rest));
    field->id = (unsigned)number(word(&rest));
    field->scope = gpu_number(word(&rest));
    const char *type = word(&rest);
    field->type = -1;
    for (int i = 0; type && i < (int)(sizeof types / sizeof *types); i++)
        if (strcmp(type, types[i]) == 0)
            field->type = i;
    field->value = rest ? rest : "0";
    return type != NULL;
}

static bool take_event(struct state *state, char *rest, bool of_system)
{
    struct event *event = GROWN(state->events, state->event_count);
    if (!event)
        return false;
    event->of_system = of_system;
    event->number = number(word(&rest));
    event->gpu = gpu_number(word(&rest));
    event->bit = number(word(&rest));
    event->data = number(word(&rest));
    event->gpu_instance = (unsigned)number(word(&rest));
    event->compute_instance = (unsigned)number(word(&rest));
    return true;
}

static bool take_limit(struct state *state, char *rest)
{
    struct limit *limit = GROWN(state->limits, state->limit_count);
    if (!limit)
        return false;
    limit->gpu = (unsigned)number(word(&rest));
    limit->soft = number(word(&rest));
    limit->hard = number(word(&rest));
    limit->used = number(word(&rest));
    limit->path = rest ? rest : "";
    return true;
}

static bool take_setting(struct state *state, char *rest)
{
    struct pair *pair = GROWN(state->settings, state->setting_count);
    if (!pair)
        return false;
    pair->key = word(&rest);
    pair->value = rest ? rest : "";
    return pair->key != NULL;
}

static bool take_line(struct state *state, char *line)
{
    char *rest = line;
    const char *kind = word(&rest);
    if (!kind)
        return true;
    if (strcmp(kind, "gpu") == 0)
        return take_gpu(state, rest);
    if (strcmp(kind, "rule") == 0)
        return take_rule(state, rest);
    if (strcmp(kind, "field") == 0)
        return take_field(state, rest);
    if (strcmp(kind, "event") == 0 || strcmp(kind, "system") == 0)
        return take_event(state, rest, *kind == 's');
    if (strcmp(kind, "limit") == 0)
        return take_limit(state, rest);
    return strcmp(kind, "set") == 0 && take_setting(state, rest);
}

static void discard(struct state *state)
{
    for (size_t i = 0; i < state->gpu_count; i++)
        free(state->gpus[i].attributes);
    free(state->gpus);
    free(state->settings);
    free(state->rules);
    free(state->fields);
    free(state->events);
    free(state->limits);
    free(state->text);
    if (state->file >= 0)
        close(state->file);
    free(state);
}

static struct state *load(void)
{
    struct state *state = calloc(1, sizeof *state);
    struct stat about;
    if (!state)
        return NULL;
    atomic_init(&state->users, 1);
    state->file = open(state_path(), O_RDONLY | O_CLOEXEC);
    bool whole = false;
    if (state->file >= 0 && fstat(state->file, &about) == 0 && (state->text = state_read(state->file))) {
        state->device = about.st_dev;
        state->inode = about.st_ino;
        char *lines = state->text, *line;
        while (!whole && (line = strsep(&lines, "\n"))) {
            whole = strcmp(line, "end") == 0;
            if (!whole && !take_line(state, line))
                break;
        }
    }
    if (!whole) {
        discard(state);
        return NULL;
    }
    return state;
}

void state_give_back(struct state *state)
{
    if (state && atomic_fetch_sub(&state->users, 1) == 1)
        discard(state);
}

struct state *state_take(void)
{
    struct stat about;
    pthread_mutex_lock(&lock);
    if (stat(state_path(), &about) != 0) {
        state_give_back(newest);
        newest = NULL;
    } else if (!newest || newest->inode != about.st_ino || newest->device != about.st_dev) {
        struct state *loaded = load();
        if (loaded) {
            state_give_back(newest);
            newest = loaded;
        }
    }
    struct state *taken = newest;
    if (taken)
        atomic_fetch_add(&taken->users, 1);
    pthread_mutex_unlock(&lock);
    return taken;
}

void state_forget(void)
{
    pthread_mutex_lock(&lock);
    state_give_back(newest);
    newest = NULL;
    pthread_mutex_unlock(&lock);
}

/* ---- asking ---- */

const char *state_setting(const struct state *state, const char *key, const char *otherwise)
{
    for (size_t i = 0; i < state->setting_count; i++)
        if (strcmp(state->settings[i].key, key) == 0)
            return state->settings[i].value;
    return otherwise;
}

unsigned long long state_number(const struct state *state, const char *key, unsigned long long otherwise)
{
    const char *text = state_setting(state, key, NULL);
    return text ? number(text) : otherwise;
}

/* A rule for every call holds neither for the last one, else nobody would ever let go, nor for nvidia-smi. */
static bool any_call_means(const char *call)
{
    return strncmp(call, "nvml", 4) == 0 && strcmp(call, "nvmlShutdown") != 0;
}

const struct rule *state_rule(const struct state *state, const char *call, int gpu, bool hang)
{
    const struct rule *best = NULL;
    int best_fit = -1;
    for (size_t i = 0; i < state->rule_count; i++) {
        const struct rule *rule = &state->rules[i];
        bool exact = strcmp(rule->call, call) == 0;
        if (rule->hang != hang || (rule->gpu != ANY && rule->gpu != gpu))
            continue;
        if (!exact && !(strcmp(rule->call, "*") == 0 && any_call_means(call)))
            continue;
        int fit = 2 * exact + (rule->gpu != ANY);
        if (fit > best_fit) {
            best = rule;
            best_fit = fit;
        }
    }
    return best;
}

const char *gpu_attribute(const struct gpu *gpu, const char *name)
{
    for (size_t i = 0; i < gpu->count; i++)
        if (strcmp(gpu->attributes[i].key, name) == 0)
            return gpu->attributes[i].value;
    return NULL;
}

bool gpu_flag(const struct gpu *gpu, const char *name)
{
    const char *value = gpu_attribute(gpu, name);
    return value && number(value) != 0;
}

nvmlReturn_t gpu_text(const struct gpu *gpu, const char *name, const char **value)
{
    *value = gpu_attribute(gpu, name);
    if (!*value || strcmp(*value, "-") == 0)
        return NVML_NOT_SUPPORTED;
    return **value == '!' ? (nvmlReturn_t)number(*value + 1) : NVML_SUCCESS;
}

nvmlReturn_t gpu_numbers(const struct gpu *gpu, const char *name, unsigned long long *numbers, size_t most, size_t *found)
{
    const char *text;
    nvmlReturn_t code = gpu_text(gpu, name, &text);
    size_t count = 0;
    memset(numbers, 0, most * sizeof *numbers);
    while (code == NVML_SUCCESS && count < most) {
        char *after;
        numbers[count] = strtoull(text, &after, 0); /* a minus sign gives the two's complement */
        if (after == text)
            break;
        text = after;
        count++;
    }
    if (found)
        *found = count;
    return code;
}
