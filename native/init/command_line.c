#include "command_line.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "proc.h"

/* Where the last byte of a process's arguments is not NUL, the kernel takes it that they were overwritten, and shows of
 * them the first string only (get_mm_cmdline in its fs/proc/base.c). */
enum { MARK = '.', ARGUMENTS_END = 49 /* which number of /proc/PID/stat says where they end */ };

static const char NAME[] = "init";

/* Returns a copy of the arguments, and has the kernel show NAME in their place, as the process's name too. */
char **take_arguments(int argc, char **argv) {
    char **taken = calloc((size_t)argc + 1, sizeof *taken);
    if (!taken || !argc) die("arguments");
    prctl(PR_SET_NAME, NAME, 0, 0, 0); /* that of the file, which may be /proc/self/exe */
    for (int i = 0; i < argc; i++)
        if (!(taken[i] = strdup(argv[i]))) die("arguments");
    size_t length = (size_t)(argv[argc - 1] - argv[0]) + strlen(argv[argc - 1]) + 1; /* they lie behind one another */
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

/* Has the kernel show the first argument only of a process that has read its arguments. Where it does not let us write to
 * the process's memory, all of them are shown as before. As its owner, it takes no capability. */
void shorten_command_line(pid_t pid, const struct user *owner) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    setfsgid(owner->gid);
    setfsuid(owner->uid);
    off_t end = arguments_end(pid);
    int memory = open(path, O_WRONLY | O_CLOEXEC);
    setfsuid(0);
    setfsgid(0);
    if (memory < 0) return;
    if (end > 0 && pwrite(memory, &(char){MARK}, 1, end - 1) != 1) errno = 0;
    close(memory);
}
