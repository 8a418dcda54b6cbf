/* A stand-in for nvidia-smi on the same state: lists, a few queries, persistence mode, and the reset with its refusals.
 *
 * Words and exit codes as the real program's, from public bug reports (NVSentinel 1690, gpu-operator 118, mig-parted 181,
 * gpu-operator 1606). Statically linked: it runs in any container.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "smi.h"

enum { LOOK_AGAIN_MS = 20, BAD_USE = 2 };

static const char USAGE[] =
    "NVIDIA System Management Interface (stand-in)\n"
    "    nvidia-smi [-L] [-i ID[,ID]] [-r | --gpu-reset] [-pm 0|1] [--query-gpu=FIELD[,FIELD] --format=csv[,noheader]]\n";

struct command {
    const char *ids, *query;
    bool list, reset, header;
    int persistence; /* -1: not asked for */
};

/* ---- finding the state ---- */

static void find_state(void)
{
    static const char *const folders[] = {"lib/x86_64-linux-gnu", "lib64", "lib/aarch64-linux-gnu", "lib"};
    const char *asked = getenv("NODEMEND_FAKE_NVML_STATE");
    char self[PATH_MAX] = "/usr/bin/nvidia-smi", path[PATH_MAX + 64];
    if (asked && *asked) {
        state_use(asked);
        return;
    }
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0)
        self[length] = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char *slash = strrchr(self, '/');
        snprintf(path, sizeof path, "%.*s/../%s/nvml.state", (int)(slash - self), self, folders[i]);
        if (access(path, R_OK) == 0) {
            state_use(path);
            return;
        }
    }
}

nvmlReturn_t smi_obey(struct state **state, const char *call, int gpu)
{
    while (*state && state_rule(*state, call, gpu, true)) {
        struct timespec pause = {0, LOOK_AGAIN_MS * 1000000L};
        state_give_back(*state);
        nanosleep(&pause, NULL);
        *state = state_take();
    }
    const struct rule *rule = *state ? state_rule(*state, call, gpu, false) : NULL;
    return rule ? rule->value : NVML_SUCCESS;
}

/* ---- choosing GPUs ---- */

const char *smi_text(const struct gpu *gpu, const char *name)
{
    const char *text;
    return gpu_text(gpu, name, &text) == NVML_SUCCESS ? text : "[N/A]";
}

static bool named(const struct gpu *gpu, unsigned index, const char *id)
{
    char number[16];
    const char *address = smi_text(gpu, "pci");
    snprintf(number, sizeof number, "%u", index);
    return strcmp(id, number) == 0 || strcmp(id, smi_text(gpu, "uuid")) == 0 || strcmp(id, smi_text(gpu, "serial")) == 0 ||
           strcasecmp(id, address) == 0 || (strlen(address) > 4 && strcasecmp(id, address + 4) == 0);
}

/* False where an id names no GPU. Without ids every GPU is chosen. */
static bool choose(const struct state *state, const char *ids, struct chosen *chosen)
{
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", ids ? ids : "");
    char *rest = copy, *id = ids ? strsep(&rest, ",") : NULL;
    do {
        bool found = !ids;
        unsigned index = 0;
        for (size_t i = 0; i < state->gpu_count; i++) {
            const struct gpu *gpu = &state->gpus[i];
            if (!gpu_flag(gpu, "present") || gpu->number >= MOST_GPUS)
                continue;
            if (!ids || named(gpu, index, id)) {
                chosen->count += !chosen->gpus[gpu->number];
                chosen->gpus[gpu->number] = found = true;
            }
            index++;
        }
        if (!found)
            return false;
    } while (ids && (id = strsep(&rest, ",")));
    return chosen->count > 0;
}

/* ---- persistence mode, lists ---- */

static void persist_line(void *context, const char *line, FILE *out)
{
    const struct chosen *chosen = context;
    unsigned gpu, before;
    if (line && sscanf(line, "gpu %u persistence %u", &gpu, &before) == 2 && gpu < MOST_GPUS && chosen->gpus[gpu])
        fprintf(out, "gpu %u persistence %d\n", gpu, chosen->persistence);
    else if (line)
        fprintf(out, "%s\n", line);
}

static int persist(const struct state *state, struct chosen *chosen)
{
    const char *word = chosen->persistence ? "Enabled" : "Disabled";
    nvmlReturn_t code = state_edit(persist_line, chosen);
    EACH_CHOSEN(gpu, state, chosen) {
        if (code != NVML_SUCCESS)
            printf("Unable to set persistence mode for GPU %s: %s\n", smi_text(gpu, "pci"), code_text(code));
        else if (gpu_flag(gpu, "persistence") == (chosen->persistence != 0))
            printf("Persistence mode is already %s for GPU %s.\n", word, smi_text(gpu, "pci"));
        else
            printf("%s persistence mode for GPU %s.\n", word, smi_text(gpu, "pci"));
    }
    if (code == NVML_SUCCESS)
        printf("All done.\n");
    return code;
}

static int list(const struct state *state)
{
    unsigned index = 0;
    for (size_t i = 0; i < state->gpu_count; i++) {
        const struct gpu *gpu = &state->gpus[i];
        if (!gpu_flag(gpu, "present"))
            continue;
        if (gpu_flag(gpu, "lost"))
            printf("Unable to determine the device handle for gpu %s: %s\n", smi_text(gpu, "pci") + 4, code_text(NVML_GPU_IS_LOST));
        else
            printf("GPU %u: %s (UUID: %s)\n", index, smi_text(gpu, "name"), smi_text(gpu, "uuid"));
        index++;
    }
    if (!index)
        printf("No devices found.\n");
    return 0;
}

/* ---- queries ---- */

enum form { AS_IS, ON_OFF, ACTION };

static const struct column {
    const char *name, *attribute;
    unsigned place;
    enum form form;
} columns[] = {
    {"uuid", "uuid", 0, AS_IS},
    {"gpu_uuid", "uuid", 0, AS_IS},
    {"name", "name", 0, AS_IS},
    {"gpu_name", "name", 0, AS_IS},
    {"pci.bus_id", "pci", 0, AS_IS},
    {"gpu_bus_id", "pci", 0, AS_IS},
    {"serial", "serial", 0, AS_IS},
    {"gpu_serial", "serial", 0, AS_IS},
    {"vbios_version", "vbios", 0, AS_IS},
    {"persistence_mode", "persistence", 0, ON_OFF},
    {"mig.mode.current", "mig_mode", 0, ON_OFF},
    {"mig.mode.pending", "mig_mode", 1, ON_OFF},
    {"ecc.mode.current", "ecc_mode", 0, ON_OFF},
    {"gpu_recovery_action", "recovery_action", 0, ACTION},
    {"remapped_rows.correctable", "remapped_rows", 0, AS_IS},
    {"remapped_rows.uncorrectable", "remapped_rows", 1, AS_IS},
    {"remapped_rows.pending", "remapped_rows", 2, AS_IS},
    {"remapped_rows.failure", "remapped_rows", 3, AS_IS},
};

static bool print_column(const struct state *state, const struct gpu *gpu, unsigned index, unsigned count, const char *name)
{
    static const char *const actions[] = {"None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"};
    unsigned long long numbers[4];
    if (strcmp(name, "index") == 0)
        return printf("%u", index) > 0;
    if (strcmp(name, "count") == 0)
        return printf("%u", count) > 0;
    if (strcmp(name, "driver_version") == 0)
        return printf("%s", state_setting(state, "driver", "[N/A]")) > 0;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const struct column *column = &columns[i];
        if (strcmp(name, column->name) != 0)
            continue;
        size_t found;
        nvmlReturn_t code = gpu_numbers(gpu, column->attribute, numbers, 4, &found);
        if (code != NVML_SUCCESS)
            printf("[N/A]");
        else if (column->form == ON_OFF)
            printf("%s", numbers[column->place] ? "Enabled" : "Disabled");
        else if (column->form == ACTION)
            printf("%s", numbers[0] < 5 ? actions[numbers[0]] : "Unknown");
        else if (strcmp(column->attribute, "remapped_rows") == 0)
            printf("%llu", numbers[column->place]);
        else
            printf("%s", smi_text(gpu, column->attribute));
        return true;
    }
    return false;
}

static int query(const struct state *state, const struct chosen *chosen, const struct command *command)
{
    unsigned index = 0, count = 0;
    for (size_t i = 0; i < state->gpu_count; i++)
        count += gpu_flag(&state->gpus[i], "present");
    if (command->header)
        printf("%s\n", command->query);
    for (size_t i = 0; i < state->gpu_count; i++) {
        const struct gpu *gpu = &state->gpus[i];
        if (!gpu_flag(gpu, "present"))
            continue;
        char copy[1024], *rest = copy, *name;
        snprintf(copy, sizeof copy, "%s", command->query);
        bool wanted = gpu->number < MOST_GPUS && chosen->gpus[gpu->number];
        if (wanted && gpu_flag(gpu, "lost")) {
            printf("Unable to determine the device handle for GPU %s: %s\n", smi_text(gpu, "pci") + 4, code_text(NVML_GPU_IS_LOST));
            return NVML_GPU_IS_LOST;
        }
        for (bool first = true; wanted && (name = strsep(&rest, ",")); first = false) {
            if (!first)
                printf(", ");
            if (!print_column(state, gpu, index, count, name)) {
                printf("Field \"%s\" is not a valid field to query.\n", name);
                return BAD_USE;
            }
        }
        if (wanted)
            printf("\n");
        index++;
    }
    return 0;
}

/* ---- the command line ---- */

/* The value of `--name=value`, `--name value` or `-n value`; NULL where `argument` is another one. */
static const char *value_of(char **argument, char ***next, const char *brief, const char *whole)
{
    size_t length = strlen(whole);
    if (strncmp(*argument, whole, length) == 0 && (*argument)[length] == '=')
        return *argument + length + 1;
    if ((strcmp(*argument, brief) == 0 || strcmp(*argument, whole) == 0) && argument[1]) {
        *next = argument + 1;
        return argument[1];
    }
    return NULL;
}

static bool read_command(char **arguments, struct command *command)
{
    for (char **at = arguments; *at; at++) {
        const char *value;
        if (strcmp(*at, "-L") == 0 || strcmp(*at, "--list-gpus") == 0) {
            command->list = true;
        } else if (strcmp(*at, "-r") == 0 || strcmp(*at, "--gpu-reset") == 0) {
            command->reset = true;
        } else if ((value = value_of(at, &at, "-i", "--id"))) {
            command->ids = value;
        } else if ((value = value_of(at, &at, "-pm", "--persistence-mode"))) {
            if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0 && strcasecmp(value, "enabled") != 0 && strcasecmp(value, "disabled") != 0)
                return false;
            command->persistence = strcmp(value, "1") == 0 || strcasecmp(value, "enabled") == 0;
        } else if ((value = value_of(at, &at, "--query-gpu", "--query-gpu")) || (value = value_of(at, &at, "--query-remapped-rows", "--query-remapped-rows"))) {
            command->query = value;
        } else if ((value = value_of(at, &at, "--format", "--format"))) {
            if (strncmp(value, "csv", 3) != 0)
                return false;
            command->header = !strstr(value, "noheader");
        } else {
            return false;
        }
    }
    return true;
}

static int run(struct state **state, const struct command *command)
{
    struct chosen chosen = {.persistence = command->persistence};
    nvmlReturn_t code = smi_obey(state, "nvidia-smi", ANY);
    if (!*state || !state_number(*state, "loaded", 0)) {
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
               "NVIDIA driver is installed and running.\n");
        return NVML_DRIVER_NOT_LOADED;
    }
    if (code != NVML_SUCCESS) {
        printf("Failed to initialize NVML: %s\n", code_text(code));
        return code > 255 ? 255 : code;
    }
    if (command->list)
        return list(*state);
    if (!choose(*state, command->ids, &chosen)) {
        printf("No devices were found\n");
        return NVML_NOT_FOUND;
    }
    if ((command->reset || command->persistence >= 0) && geteuid() != 0) {
        printf("Unable to change this GPU: %s\n", code_text(NVML_NO_PERMISSION));
        return NVML_NO_PERMISSION;
    }
    if (command->reset)
        return smi_reset(state, &chosen);
    if (command->persistence >= 0)
        return persist(*state, &chosen);
    return command->query ? query(*state, &chosen, command) : list(*state);
}

int main(int count, char **arguments)
{
    struct command command = {.persistence = -1, .header = true};
    if (count < 1 || !read_command(arguments + 1, &command)) {
        fputs(USAGE, stdout);
        return BAD_USE;
    }
    find_state();
    struct state *state = state_take();
    int code = run(&state, &command);
    state_give_back(state);
    state_forget();
    return code;
}
