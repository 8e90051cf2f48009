#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "error_text.h"
#include "init/entry.h"
#include "init/home.h"
#include "limit.h"
#include "look.h"
#include "memory.h"

enum {
    MOST_LEVELS = 64, /* of directories: one is open for each, and the process needs descriptors for other things */
    MOST_BYTES = 8 << 20,
    OFTEN = 64,
};
#define SETTLES 2000000000LL /* ns; some file systems store ctimes in whole seconds */

struct files {
    struct memory last;
};

/* A look in progress. */
struct look {
    struct memory *last, now;
    struct text changed, gone;
    char path[PATH_MAX]; /* of the current entry */
    dev_t device;
    int64_t settled; /* earlier ctimes are settled */
    int64_t end;     /* see limit.h */
    unsigned count;
    struct attribute_room *room;
    enum look_result result;
    char *why;
    size_t why_room;
};

static void end(struct look *l, enum look_result result, const char *why) {
    if (l->result != LOOK_DONE) return;
    l->result = result;
    snprintf(l->why, l->why_room, "%.200s: %s", *l->path ? l->path : "/", why);
}

static void keep_time(struct look *l) {
    if (is_over(l->end)) end(l, LOOK_TOO_LONG, "too much time");
}

static void tell_changed(struct look *l, const struct entry *e, size_t length) {
    char numbers[MOST_NUMBERS];
    size_t n = write_numbers(numbers, e);
    bool told = length ? add_text(&l->changed, l->path, length) : add_text(&l->changed, "/", 1);
    if (!told || !add_text(&l->changed, "", 1) || !add_text(&l->changed, numbers, n) || !add_text(&l->changed, "", 1))
        end(l, LOOK_NOT_ALL, error_text(ENOMEM));
}

/* Reads what can only change together with the ctime. */
static void read_rest(struct look *l, struct entry *e, int parent, const char *name, int directory) {
    char place[64 + NAME_MAX];
    if (!l->room) l->room = malloc(sizeof *l->room);
    if (!l->room) {
        end(l, LOOK_NOT_ALL, error_text(ENOMEM));
        return;
    }
    e->flags = read_flags(directory);
    snprintf(place, sizeof place, "/proc/self/fd/%d/%s", parent, name);
    int error = read_attributes(place, e, l->room);
    if (error) end(l, LOOK_NOT_ALL, error_text(error));
    if (e->attributed) keep_time(l);
}

/* Handles one entry, `l->path`, of that length. `directory`: its descriptor if it is a directory to be walked. */
static void look_at(struct look *l, struct entry *e, int parent, const char *name, int directory, size_t length) {
    struct seen *was = find_seen(l->last, l->path, length);
    int64_t ctime = nanoseconds(e->st.st_ctim);
    bool here = e->st.st_dev == l->device, output = strcmp(l->path, OUTPUT_PATH) == 0;
    if (was && was->settled && here && !output && was->facts.ctime == ctime && was->facts.mode == e->st.st_mode &&
        was->facts.inode == (int64_t)e->st.st_ino) {
        e->opaque = was->facts.opaque;
        e->flags = (unsigned)was->facts.flags;
        e->attributed = was->facts.attributed;
        e->attributes = was->facts.attributes;
    } else {
        e->opaque = length && directory >= 0 && is_opaque(directory);
        read_rest(l, e, parent, name, directory);
    }
    if (output) keep_owned(&e->st);
    struct facts is = facts_of(e);
    if (!was || memcmp(&was->facts, &is, sizeof is) != 0) tell_changed(l, e, length);
    if (was) was->met = true;
    if (!remember(&l->now, l->path, length, &is, here && ctime < l->settled)) end(l, LOOK_NOT_ALL, error_text(ENOMEM));
    if (bytes_of(&l->now) > MOST_BYTES) end(l, LOOK_TOO_MUCH, "too many files");
}

static int open_below(struct look *l, int parent, const char *name, int level) {
    if (level + 1 == MOST_LEVELS) {
        end(l, LOOK_TOO_MUCH, "too many levels");
        return -1;
    }
    int fd = open_directory(parent, name, O_NOFOLLOW);
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP) end(l, LOOK_NOT_ALL, error_text(errno));
    return fd;
}

/* Walks what is below `directory`, which it closes; `l->path` is its path, of that length. */
static void walk(struct look *l, int directory, size_t length, int level) {
    DIR *d = fdopendir(directory);
    struct dirent *e;
    if (!d) {
        end(l, LOOK_NOT_ALL, error_text(errno));
        close(directory);
        return;
    }
    while (l->result == LOOK_DONE && (errno = 0, (e = readdir(d)))) {
        const char *name = e->d_name;
        size_t n = strlen(name);
        if (++l->count % OFTEN == 0) keep_time(l);
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        if (n > NAME_MAX || length + n + 2 > sizeof l->path) {
            end(l, LOOK_NOT_ALL, "the paths in it are too long");
            break;
        }
        l->path[length] = '/';
        memcpy(l->path + length + 1, name, n + 1);
        struct entry entry = {0};
        if (fstatat(directory, name, &entry.st, AT_SYMLINK_NOFOLLOW)) continue; /* it was just deleted */
        bool walked = S_ISDIR(entry.st.st_mode) && entry.st.st_dev == l->device;
        int child = walked ? open_below(l, directory, name, level) : -1;
        look_at(l, &entry, directory, name, child, length + 1 + n);
        if (child >= 0) walk(l, child, length + 1 + n, level + 1);
    }
    l->path[length] = 0;
    if (l->result == LOOK_DONE && errno) end(l, LOOK_NOT_ALL, error_text(errno));
    closedir(d);
}

static void walk_all(struct look *l, int directory) {
    struct entry entry = {0};
    int fd = open_directory(directory, ".", 0);
    if (fd < 0 || fstat(fd, &entry.st)) {
        end(l, LOOK_NOT_ALL, error_text(errno));
        if (fd >= 0) close(fd);
        return;
    }
    l->device = entry.st.st_dev;
    look_at(l, &entry, fd, ".", fd, 0);
    walk(l, fd, 0, 0);
}

static void tell_gone(struct look *l) {
    for (size_t i = 0; i < l->last->count && l->result == LOOK_DONE; i++) {
        const struct seen *was = &l->last->files[i];
        if (was->met) continue;
        if (!add_text(&l->gone, l->last->paths.data + was->path, was->length) || !add_text(&l->gone, "", 1))
            end(l, LOOK_NOT_ALL, error_text(ENOMEM));
    }
}

struct files *look_files_new(void) { return calloc(1, sizeof(struct files)); }

/* Returns a copy with the same memory, for a directory that is a copy; NULL if there is no memory. */
struct files *look_files_copy(const struct files *files) {
    struct files *copy = look_files_new();
    if (copy && !copy_memory(&copy->last, &files->last)) {
        free(copy);
        return NULL;
    }
    return copy;
}

/* Inspects a directory, as `/`, and everything below it, in at most `seconds` of processor time. */
int look_files(struct files *files, int directory, double seconds, struct told *told) {
    *told = (struct told){0};
    struct look *l = calloc(1, sizeof *l);
    if (!l) {
        forget(&files->last);
        snprintf(told->why, sizeof told->why, "%s", error_text(ENOMEM));
        return LOOK_NOT_ALL;
    }
    l->last = &files->last;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    l->settled = nanoseconds(now) - SETTLES;
    l->end = limit_after(seconds);
    l->why = told->why;
    l->why_room = sizeof told->why;
    walk_all(l, directory);
    tell_gone(l);
    enum look_result result = l->result;
    forget(&files->last);
    if (result == LOOK_DONE) {
        files->last = l->now;
        told->changed = l->changed.data;
        told->changed_length = l->changed.length;
        told->gone = l->gone.data;
        told->gone_length = l->gone.length;
    } else {
        forget(&l->now);
        free(l->changed.data);
        free(l->gone.data);
    }
    free(l->room);
    free(l);
    return result;
}

void look_told_free(struct told *told) {
    free(told->changed);
    free(told->gone);
    *told = (struct told){0};
}

void look_files_free(struct files *files) {
    if (files) forget(&files->last);
    free(files);
}
