/* What the parts of the stand-in for nvidia-smi share. */
#ifndef SMI_H
#define SMI_H

#include "state.h"

/* GPUs by their number in the state. */
struct chosen {
    bool gpus[MOST_GPUS];
    unsigned count;
    int persistence;
};

#define EACH_CHOSEN(gpu, state, chosen) \
    for (const struct gpu *gpu = (state)->gpus; gpu < (state)->gpus + (state)->gpu_count; gpu++) \
        if (gpu->number < MOST_GPUS && (chosen)->gpus[gpu->number])

/* An attribute as it is printed. */
const char *smi_text(const struct gpu *gpu, const char *name);
/* Hang and fail as the rules for `call` say, for one GPU or for none. Gives the code, Success for none. */
nvmlReturn_t smi_obey(struct state **state, const char *call, int gpu);
/* Reset what is chosen, or say why not. Gives the exit code; `state` may be a newer one afterwards. */
int smi_reset(struct state **state, struct chosen *chosen);

#endif
