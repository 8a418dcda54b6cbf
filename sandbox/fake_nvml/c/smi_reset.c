/* The reset: what refuses it, and what it clears. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "smi.h"

enum { CLIENTS_IN_THE_WAY = 255 };

/* Whether something other than a client of the library holds this GPU. */
static bool held(const struct gpu *gpu)
{
    if (gpu_flag(gpu, "persistence"))
        return true; /* persistence mode is an attachment too */
    for (size_t i = 0; i < gpu->count; i++)
        if (strncmp(gpu->attributes[i].key, "process.", 8) == 0 || strncmp(gpu->attributes[i].key, "mig.", 4) == 0)
            return true;
    return false;
}

/* An exclusive hold of the driver, -1 while any client is initialised. */
static int hold_alone(void)
{
    char path[PATH_MAX];
    int file = state_sibling("nvml.live/held", path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0) {
        close(file);
        return -1;
    }
    return file;
}

/* What a reset clears: of the numbers of an attribute those whose bit is set. */
static const struct {
    const char *name;
    unsigned bits;
} cleared[] = {
    {"reset_required", 1},
    {"recovery_action", 1},
    {"remapped_rows", 1 << 2},    /* pending */
    {"sram", 1 << 3 | 1 << 4 | 1 << 5}, /* the volatile ones */
};

static void reset_attribute(const char *name, const char *value, unsigned gpu, FILE *out)
{
    unsigned place, pending;
    size_t i = 0;
    while (i < sizeof cleared / sizeof *cleared && strcmp(name, cleared[i].name) != 0)
        i++;
    const bool clears = i < sizeof cleared / sizeof *cleared;
    if (sscanf(name, "ecc.%*u.%u", &place) == 1 && place == 0)
        return; /* volatile counts begin anew */
    fprintf(out, "gpu %u %s", gpu, name);
    if (strcmp(name, "mig_mode") == 0 && sscanf(value, "%*u %u", &pending) == 1) {
        fprintf(out, " %u %u\n", pending, pending); /* what was pending holds now */
        return;
    }
    char *after;
    unsigned long long number = strtoull(value, &after, 0);
    for (unsigned n = 0; clears && after != value; n++) {
        fprintf(out, " %llu", cleared[i].bits >> n & 1 ? 0 : number);
        value = after;
        number = strtoull(value, &after, 0);
    }
    fprintf(out, clears ? "%s\n" : " %s\n", value); /* what is no number stays */
}

static void reset_line(void *context, const char *line, FILE *out)
{
    const struct chosen *chosen = context;
    char name[64], kind[16], until[16];
    unsigned gpu, field;
    int value = 0;
    if (!line)
        return;
    if (sscanf(line, "gpu %u %63s %n", &gpu, name, &value) == 2 && gpu < MOST_GPUS && chosen->gpus[gpu] && value) {
        if (strcmp(name, "resets") == 0)
            fprintf(out, "gpu %u resets %lu\n", gpu, strtoul(line + value, NULL, 10) + 1);
        else
            reset_attribute(name, line + value, gpu, out);
        return;
    }
    if (sscanf(line, "rule %*s %u %15s %*s %15s", &gpu, kind, until) == 3 && gpu < MOST_GPUS && chosen->gpus[gpu] &&
        strcmp(until, "reset") == 0)
        return;
    if (sscanf(line, "field %u %u", &gpu, &field) == 2 && gpu < MOST_GPUS && chosen->gpus[gpu] &&
        (field == 144 || field == 226 || field == 227 || field == 230))
        return;
    fprintf(out, "%s\n", line);
}

/* A reset that says it worked and did nothing: attribute reset_works is 0. */
static void count_line(void *context, const char *line, FILE *out)
{
    const struct chosen *chosen = context;
    unsigned gpu, resets;
    if (line && sscanf(line, "gpu %u resets %u", &gpu, &resets) == 2 && gpu < MOST_GPUS && chosen->gpus[gpu])
        fprintf(out, "gpu %u resets %u\n", gpu, resets + 1);
    else if (line)
        fprintf(out, "%s\n", line);
}

static int refuse_clients(const struct state *state, const struct chosen *chosen, bool library_clients)
{
    unsigned count = 0;
    EACH_CHOSEN(gpu, state, chosen) {
        if (!library_clients && !held(gpu))
            continue;
        if (!count++)
            printf("The following GPUs could not be reset:\n");
        printf("  GPU %s: %s\n", smi_text(gpu, "pci"), code_text(NVML_IN_USE));
    }
    if (!count)
        return 0;
    printf("\n%u device%s currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, "
           "graphics application such as an X server, or a monitoring application such as another instance of "
           "nvidia-smi). Please first kill all processes using %s and all compute applications running in the system.\n",
           count, count == 1 ? " is" : "s are", count == 1 ? "this device" : "these devices");
    return CLIENTS_IN_THE_WAY;
}

static int refuse_state(struct state **state, const struct chosen *chosen)
{
    unsigned all = 0;
    for (size_t i = 0; i < (*state)->gpu_count; i++)
        all += gpu_flag(&(*state)->gpus[i], "present");
    EACH_CHOSEN(gpu, *state, chosen) {
        if (gpu_flag(gpu, "lost")) {
            printf("Unable to determine the device handle for GPU %s: %s.  Reboot the system to recover this GPU\n",
                   smi_text(gpu, "pci") + 4, code_text(NVML_GPU_IS_LOST));
            return NVML_GPU_IS_LOST;
        }
        if (gpu_flag(gpu, "reset_together") && chosen->count < all) {
            printf("Resetting GPU %s is not supported.\n", smi_text(gpu, "pci"));
            return NVML_NOT_SUPPORTED;
        }
    }
    for (int number = 0; number < MOST_GPUS; number++) {
        nvmlReturn_t code = chosen->gpus[number] ? smi_obey(state, "nvidia-smi-reset", number) : NVML_SUCCESS;
        if (code != NVML_SUCCESS) {
            printf("Unable to reset GPU %d: %s\n", number, code_text(code));
            return code > 255 ? 255 : code;
        }
    }
    return 0;
}

int smi_reset(struct state **state, struct chosen *chosen)
{
    int refused = refuse_state(state, chosen);
    if (refused)
        return refused;
    int alone = hold_alone();
    if ((refused = refuse_clients(*state, chosen, alone < 0)) == 0) {
        struct chosen works = {0}, pretends = {0};
        EACH_CHOSEN(gpu, *state, chosen)
            (gpu_attribute(gpu, "reset_works") && !gpu_flag(gpu, "reset_works") ? &pretends : &works)->gpus[gpu->number] = true;
        nvmlReturn_t code = state_edit(reset_line, &works);
        if (code == NVML_SUCCESS)
            code = state_edit(count_line, &pretends);
        if (code != NVML_SUCCESS) {
            printf("GPU reset failed: %s\n", code_text(code));
            refused = code;
        }
    }
    if (!refused)
        EACH_CHOSEN(gpu, *state, chosen)
            printf("GPU %s was successfully reset.\n", smi_text(gpu, "pci"));
    if (alone >= 0)
        close(alone);
    return refused;
}
