#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool fail(struct reason *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, why->room, format, arguments);
    va_end(arguments);
    return false;
}

bool add(struct text *to, const void *data, size_t length) {
    if (to->length + length + 1 > to->room) {
        size_t room = (to->length + length + 1) * 2;
        char *grown = realloc(to->data, room);
        if (!grown) return false;
        to->data = grown;
        to->room = room;
    }
    memcpy(to->data + to->length, data, length);
    to->length += length;
    to->data[to->length] = 0;
    return true;
}

bool add_line(struct text *to, const char *format, ...) {
    char line[PATH_MAX + 256];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return n >= 0 && (size_t)n < sizeof line && add(to, line, (size_t)n);
}

/* Adds a file of a process, of at most MOST_FACTS bytes. */
bool add_file(struct text *to, int pid, const char *name) {
    char path[64], chunk[65536];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT && start_of(pid) != 0; /* no such file here */
    ssize_t n;
    size_t begun = to->length;
    bool fits = true;
    while (fits && (n = read(fd, chunk, sizeof chunk)) > 0)
        fits = to->length - begun + (size_t)n <= MOST_FACTS && add(to, chunk, (size_t)n);
    close(fd);
    return fits;
}

/* Tells the first line in which two texts differ, if they do. */
bool same_text(struct reason *why, int pid, const struct text *was, const struct text *is) {
    if (was->length == is->length && (!was->length || memcmp(was->data, is->data, is->length) == 0)) return true;
    size_t at = 0, line = 0;
    while (at < was->length && at < is->length && was->data[at] == is->data[at])
        if (was->data[at++] == '\n') line = at;
    return fail(why, "process %d was '%.80s' and is '%.80s'", pid, was->data + line, is->data + line);
}

/* When a process began, in clock ticks; 0 if there is none. With its number, this names it and no other. */
unsigned long long start_of(int pid) {
    char path[64], stat[1024];
    unsigned long long start = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, stat, sizeof stat - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return 0;
    stat[n] = 0;
    const char *after = strrchr(stat, ')'); /* its name may have any other character */
    if (after) sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &start);
    return start;
}
