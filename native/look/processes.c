#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "look.h"
#include "memory.h"
#include "result.h"

enum { MOST_READ = 4096, LONGEST_NAME = 64 };

/* Returns the next numeric name in a directory; false at its end. */
static bool next_number(DIR *d, long *number) {
    struct dirent *e;
    while ((e = readdir(d))) {
        char *after;
        *number = strtol(e->d_name, &after, 10);
        if (after != e->d_name && !*after) return true;
    }
    return false;
}

/* Reads the beginning of a small file; returns -1 and sets errno on failure. */
static ssize_t read_beginning(const char *path, char out[MOST_READ]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, out, MOST_READ - 1);
    int error = errno;
    close(fd);
    errno = error;
    if (n >= 0) out[n] = 0;
    return n;
}

static DIR *open_numbers(int pid, const char *what) {
    char name[LONGEST_NAME];
    snprintf(name, sizeof name, "/proc/%d/%s", pid, what);
    return opendir(name);
}

/* Adds a line `THREAD SCHEDSTAT` for each thread of a process. Returns 0, or an error number. */
static int add_ran(struct text *to, int pid, int *left) {
    DIR *d = open_numbers(pid, "task");
    int error = d ? 0 : errno;
    for (long thread; !error && next_number(d, &thread);) {
        char name[LONGEST_NAME], ran[MOST_READ], line[LONGEST_NAME];
        snprintf(name, sizeof name, "/proc/%d/task/%ld/schedstat", pid, thread);
        ssize_t n = read_beginning(name, ran);
        if (n < 0) error = errno;
        else if (--*left < 0) error = E2BIG;
        else if (!add_text(to, line, (size_t)snprintf(line, sizeof line, "%ld ", thread)) || !add_text(to, ran, (size_t)n)) error = ENOMEM;
    }
    if (d) closedir(d);
    return error;
}

/* Finds what changes when the threads of processes run: lines `THREAD SCHEDSTAT` and a zero byte for each process,
 * for at most `most` threads. */
int look_ran(const int *pids, int count, int most, struct told *told) {
    struct text found = {0};
    int error = 0;
    for (int i = 0; i < count && !error; i++) {
        error = add_ran(&found, pids[i], &most);
        if (!error && !add_text(&found, "", 1)) error = ENOMEM;
    }
    return tell(told, &found, error);
}

/* Adds the contents of a thread's file, and a zero byte; if it is not needed, it may be missing. */
static int add_said(struct text *to, int pid, long thread, const char *what, bool needed) {
    char name[LONGEST_NAME], said[MOST_READ] = "";
    snprintf(name, sizeof name, "/proc/%d/task/%ld/%s", pid, thread, what);
    if (read_beginning(name, said) < 0 && needed) return errno;
    return add_text(to, said, strlen(said) + 1) ? 0 : ENOMEM;
}

/* Finds what the threads of a process do: `THREAD`, and its stat and syscall files, each with a zero byte. A thread
 * that has ended is in no call. */
int look_threads(int pid, struct told *told) {
    struct text found = {0};
    DIR *d = open_numbers(pid, "task");
    int error = d ? 0 : errno;
    for (long thread; !error && next_number(d, &thread);) {
        char line[LONGEST_NAME];
        if (!add_text(&found, line, (size_t)snprintf(line, sizeof line, "%ld", thread) + 1)) error = ENOMEM;
        if (!error) error = add_said(&found, pid, thread, "stat", true);
        if (!error) error = add_said(&found, pid, thread, "syscall", false);
    }
    if (d) closedir(d);
    return tell(told, &found, error);
}

static int add_descriptor(struct text *to, int pid, long number) {
    char name[LONGEST_NAME], target[PATH_MAX];
    snprintf(name, sizeof name, "/proc/%d/fd/%ld", pid, number);
    ssize_t n = readlink(name, target, sizeof target);
    if (n < 0) return errno;
    int length = snprintf(name, sizeof name, "%ld ", number);
    return add_text(to, name, (size_t)length) && add_text(to, target, (size_t)n) && add_text(to, "", 1) ? 0 : ENOMEM;
}

/* Lists what a process has open: `NUMBER TARGET` and a zero byte for each descriptor, of at most `most`. Those that are
 * closed meanwhile are omitted. */
int look_descriptors(int pid, int most, struct told *told) {
    struct text found = {0};
    DIR *d = open_numbers(pid, "fd");
    int error = d ? 0 : errno;
    for (long number; !error && next_number(d, &number);) {
        error = --most < 0 ? E2BIG : add_descriptor(&found, pid, number);
        if (error == ENOENT) error = 0;
    }
    if (d) closedir(d);
    return tell(told, &found, error);
}
