/* Changing the state: a copy is written and put in its place whole, under the lock that all writers take. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "state.h"

static nvmlReturn_t write_new(const char *text, size_t length)
{
    char name[48], path[PATH_MAX];
    snprintf(name, sizeof name, ".nvml.state.%ld", (long)getpid());
    if (!state_sibling(name, path))
        return NVML_OPERATING_SYSTEM;
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0)
        return NVML_NO_PERMISSION;
    size_t done = 0;
    while (done < length) {
        ssize_t now = write(file, text + done, length - done);
        if (now < 0 && errno != EINTR)
            break;
        done += now > 0 ? (size_t)now : 0;
    }
    close(file);
    if (done == length && rename(path, state_path()) == 0)
        return NVML_SUCCESS;
    unlink(path);
    return NVML_OPERATING_SYSTEM;
}

static nvmlReturn_t edited(const char *path, state_edit_line edit, void *context)
{
    char *text, *output = NULL;
    size_t length = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return NVML_DRIVER_NOT_LOADED;
    text = state_read(file);
    close(file);
    FILE *out = text ? open_memstream(&output, &length) : NULL;
    nvmlReturn_t code = NVML_MEMORY;
    if (out) {
        char *lines = text, *line;
        while ((line = strsep(&lines, "\n")) && strcmp(line, "end") != 0)
            edit(context, line, out);
        edit(context, NULL, out);
        fputs("end\n", out);
        if (fclose(out) == 0)
            code = write_new(output, length);
    }
    free(output);
    free(text);
    return code;
}

nvmlReturn_t state_edit(state_edit_line edit, void *context)
{
    char path[PATH_MAX];
    if (!state_sibling("nvml.live/lock", path))
        return NVML_OPERATING_SYSTEM;
    int writers = open(path, O_RDWR | O_CLOEXEC);
    if (writers < 0)
        return NVML_NO_PERMISSION;
    while (flock(writers, LOCK_EX) != 0)
        if (errno != EINTR) {
            close(writers);
            return NVML_OPERATING_SYSTEM;
        }
    nvmlReturn_t code = edited(state_path(), edit, context);
    close(writers);
    return code;
}
