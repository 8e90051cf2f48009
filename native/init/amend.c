#include "amend.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "buffers.h"

struct amendment {
    const char *path;
    int64_t mtime; /* nanoseconds */
    size_t depth;
};

static size_t failures;

static void fail(const char *path) {
    if (!failures++) dprintf(2, "%s: %s\n", path, error_text(errno));
}

static void set_time(const struct amendment *a) {
    int64_t below = ((a->mtime % 1000000000) + 1000000000) % 1000000000;
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = (a->mtime - below) / 1000000000, .tv_nsec = (long)below},
    };
    if (utimensat(AT_FDCWD, a->path, times, AT_SYMLINK_NOFOLLOW)) fail(a->path);
}

static int deepest_first(const void *left, const void *right) {
    const struct amendment *a = left, *b = right;
    return a->depth < b->depth ? 1 : a->depth > b->depth ? -1 : 0;
}

/* Directories come last. Prints how many paths could not be set, and the reason for the first; returns 1 if there
 * were any, 2 for invalid input. */
int amend(void) {
    struct buffer input = {0};
    if (!read_all(0, &input)) die("stdin");
    size_t count = 0;
    for (size_t i = 0; i < input.length; i++) count += !input.data[i];
    struct amendment *directories = calloc(count / 2 + 1, sizeof *directories);
    if (!directories) die("memory");
    if (count % 2 || (input.length && input.data[input.length - 1])) {
        dprintf(2, "not pairs of a path and a time, each ended by a NUL\n");
        return 2;
    }
    size_t kept = 0;
    const char *at = input.data;
    for (size_t i = 0; i < count / 2; i++) {
        struct amendment a = {.path = at};
        for (const char *c = at; *c; c++) a.depth += *c == '/';
        at += strlen(at) + 1;
        a.mtime = strtoll(at, NULL, 10);
        at += strlen(at) + 1;
        struct stat st;
        if (lstat(a.path, &st)) fail(a.path);
        else if (S_ISDIR(st.st_mode)) directories[kept++] = a;
        else set_time(&a);
    }
    qsort(directories, kept, sizeof *directories, deepest_first);
    for (size_t i = 0; i < kept; i++) set_time(&directories[i]);
    printf("%zu\n", failures);
    return fflush(stdout) || failures;
}
