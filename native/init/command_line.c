#include "command_line.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "proc.h"

/* If the last byte of a process's arguments is not NUL, the kernel assumes that they were overwritten, and shows
 * only their first string (get_mm_cmdline in its fs/proc/base.c). */
enum { MARK = '.', ARGUMENTS_END = 49 /* the field of /proc/PID/stat with the end of the arguments */ };

static const char NAME[] = "init";

/* Returns a copy of the arguments, and makes the kernel show NAME in their place, and as the process's name. */
char **take_arguments(int argc, char **argv) {
    char **taken = calloc((size_t)argc + 1, sizeof *taken);
    if (!taken || !argc) die("arguments");
    prctl(PR_SET_NAME, NAME, 0, 0, 0); /* otherwise the file's, which may be /proc/self/exe */
    for (int i = 0; i < argc; i++)
        if (!(taken[i] = strdup(argv[i]))) die("arguments");
    size_t length = (size_t)(argv[argc - 1] - argv[0]) + strlen(argv[argc - 1]) + 1; /* they are contiguous */
    if (length <= sizeof NAME) return taken;
    memset(argv[0], 0, length);
    memcpy(argv[0], NAME, sizeof NAME);
    argv[0][length - 1] = MARK;
    return taken;
}

static off_t arguments_end(pid_t pid) {
    char text[1024];
    const char *at = read_proc(pid, "stat", text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < ARGUMENTS_END; field++) at = strchr(at + 1, ' ');
    return at ? (off_t)strtoll(at, NULL, 10) : 0;
}

/* Makes the kernel show only the first argument of a process that has read its arguments. If the process's memory is
 * not writable for us, all of them stay visible. We act as its owner, which needs no capability. */
void shorten_command_line(pid_t pid, const struct user *owner) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    act_as(owner);
    off_t end = arguments_end(pid);
    int memory = open(path, O_WRONLY | O_CLOEXEC);
    act_as_root();
    if (memory < 0) return;
    if (end > 0 && pwrite(memory, &(char){MARK}, 1, end - 1) != 1) errno = 0;
    close(memory);
}
