/* The driver's state: a text file that its writer replaces whole, read anew only when it was replaced.
 *
 * Line by line (a value is the rest of its line):
 *     set KEY VALUE                                 gpu KEY NAME VALUE
 *     rule CALL GPU answer CODE UNTIL               rule CALL GPU hang SIGTERM_BLOCKED UNTIL
 *     field GPU ID SCOPE TYPE VALUE                 limit GPU SOFT HARD USED PATH
 *     event NUMBER GPU BIT DATA GI CI               system NUMBER GPU BIT
 * GPU is the writer's number of a GPU (it outlives any change of NVML's index) or `*`. UNTIL is `heal` or `reset`. A value
 * `-` means NotSupported, `!CODE` that code. The last line is `end`.
 */
#ifndef STATE_H
#define STATE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "nvml_types.h"

enum { MOST_GPUS = 16, ANY = -1 };

struct pair {
    const char *key, *value;
};

struct gpu {
    unsigned number;
    struct pair *attributes;
    size_t count;
};

struct rule {
    const char *call;
    int gpu;
    bool hang;
    int value; /* the code; for a hang whether SIGTERM is ignored meanwhile */
};

struct field {
    unsigned gpu, id;
    long scope;
    int type; /* -1: value is a code */
    const char *value;
};

struct event {
    unsigned long long number;
    int gpu;
    unsigned long long bit, data;
    unsigned gpu_instance, compute_instance;
    bool of_system;
};

struct limit {
    unsigned gpu;
    unsigned long long soft, hard, used;
    const char *path;
};

struct state {
    atomic_uint users;
    int file; /* kept open, so that no later file can have the same inode */
    dev_t device;
    ino_t inode;
    char *text;
    struct pair *settings;
    struct gpu *gpus;
    struct rule *rules;
    struct field *fields;
    struct event *events;
    struct limit *limits;
    size_t setting_count, gpu_count, rule_count, field_count, event_count, limit_count;
};

/* Where the state is. The library finds it beside itself, or where NODEMEND_FAKE_NVML_STATE says. */
const char *state_path(void);
void state_use(const char *path);
/* `name` in the folder of the state; false where the path would be too long. */
bool state_sibling(const char *name, char path[PATH_MAX]);

/* The newest state, to be given back; NULL where there is none. */
struct state *state_take(void);
void state_give_back(struct state *state);
/* Drop what is kept between calls: neither memory nor a file stays. */
void state_forget(void);

const char *state_setting(const struct state *state, const char *key, const char *otherwise);
unsigned long long state_number(const struct state *state, const char *key, unsigned long long otherwise);

/* The rule that fits best: an exact call counts more than an exact GPU. NULL for none. */
const struct rule *state_rule(const struct state *state, const char *call, int gpu, bool hang);

/* An attribute as text, NULL where it is not there at all. */
const char *gpu_attribute(const struct gpu *gpu, const char *name);
bool gpu_flag(const struct gpu *gpu, const char *name);
/* NotSupported or the code that stands in place of a value; else Success. */
nvmlReturn_t gpu_text(const struct gpu *gpu, const char *name, const char **value);
/* Up to `most` numbers of an attribute; those that it lacks are 0. `found` may be NULL. */
nvmlReturn_t gpu_numbers(const struct gpu *gpu, const char *name, unsigned long long *numbers, size_t most, size_t *found);

/* The whole of an open file, to be freed; NULL where it cannot be read. */
char *state_read(int file);

/* Rewrite the state under the writers' lock: `edit` prints what is to stand in place of each line, and of NULL at the end.
 * Gives NoPermission where the folder cannot be written. */
typedef void (*state_edit_line)(void *context, const char *line, FILE *out);
nvmlReturn_t state_edit(state_edit_line edit, void *context);

#endif
