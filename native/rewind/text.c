#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 8192 };

bool fail(struct reason *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, why->room, format, arguments);
    va_end(arguments);
    return false;
}

/* Makes room for `length` more bytes, and for a zero byte after them. */
static bool make_room(struct text *to, size_t length) {
    if (to->length + length + 1 <= to->room) return true;
    size_t room = (to->length + length + 1) * 2;
    char *grown = realloc(to->data, room);
    if (!grown) return false;
    to->data = grown;
    to->room = room;
    return true;
}

bool add(struct text *to, const void *data, size_t length) {
    if (!make_room(to, length)) return false;
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

static bool add_read(struct text *to, int directory, const char *name, bool in_parts) {
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT && faccessat(directory, "stat", F_OK, 0) == 0; /* this kernel has no such file */
    size_t begun = to->length, room = 0;
    ssize_t n = 0;
    bool fits = make_room(to, 0);
    do {
        fits = fits && to->length - begun <= MOST_FACTS && make_room(to, CHUNK);
        room = to->room - to->length - 1;
        n = fits ? read(fd, to->data + to->length, room) : 0;
        to->length += n > 0 ? (size_t)n : 0;
    } while (n > 0 && (in_parts || (size_t)n == room));
    close(fd);
    if (fits) to->data[to->length] = 0;
    return fits && to->length - begun <= MOST_FACTS;
}

/* Adds a file of at most MOST_FACTS bytes from a process' directory in /proc, if it can be read in one piece. */
bool add_file(struct text *to, int directory, const char *name) { return add_read(to, directory, name, false); }

/* The same for a file that the kernel returns in parts, however much is requested. */
bool add_list(struct text *to, int directory, const char *name) { return add_read(to, directory, name, true); }

/* Reports the first line in which two texts differ, if they do. */
bool same_text(struct reason *why, int pid, const struct text *was, const struct text *is) {
    if (was->length == is->length && (!was->length || memcmp(was->data, is->data, is->length) == 0)) return true;
    size_t at = 0, line = 0;
    while (at < was->length && at < is->length && was->data[at] == is->data[at])
        if (was->data[at++] == '\n') line = at;
    return fail(why, "process %d was '%.80s' and is '%.80s'", pid, was->data + line, is->data + line);
}

/* Returns when a process began, in clock ticks; 0 if there is none. Together with its id, this is unique. */
unsigned long long start_of(int directory) {
    char stat[1024];
    int fd = openat(directory, "stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, stat, sizeof stat - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return 0;
    stat[n] = 0;
    const char *field = strrchr(stat, ')'); /* the name may contain any other character */
    for (int number = 2; field && number < 22; number++) field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

/* Whether the kernel says of a path that it is one no more. */
bool is_deleted(const char *path) {
    static const char mark[] = " (deleted)";
    size_t length = strlen(path), tail = sizeof mark - 1;
    return length >= tail && strcmp(path + length - tail, mark) == 0;
}
