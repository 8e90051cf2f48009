/* Names of temporary files: the C library's functions draw them without calling one that could be replaced. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

enum { TRIES = 238328 };

static size_t length_of(const char *text) {
    size_t length = 0;
    while (text[length]) length++;
    return length;
}

enum { FILE_NAME, DIRECTORY, NAME_ONLY };

static long make(const char *path, int kind, int flags) {
    struct stat about;
    if (kind == DIRECTORY) return kernel(SYS_mkdirat, AT_FDCWD, (long)path, 0700, 0);
    if (kind == FILE_NAME)
        return kernel(SYS_openat, AT_FDCWD, (long)path, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, 0600);
    long there = kernel(SYS_newfstatat, AT_FDCWD, (long)path, (long)&about, AT_SYMLINK_NOFOLLOW);
    return there == 0 ? -EEXIST : there == -ENOENT ? 0 : there;
}

/* Replaces the six X before the suffix until the name is new; returns the result of `make`, or -1 and sets errno. */
static int make_named(char *template, size_t suffix, int kind, int flags) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t length = length_of(template);
    long made = -EINVAL;
    bool right = length >= 6 + suffix;
    char *x = template + length - suffix - 6;
    for (int i = 0; right && i < 6; i++) right = x[i] == 'X';
    for (int i = 0; right && i < TRIES; i++) {
        for (int j = 0; j < 6; j++) x[j] = letters[draw_below(sizeof letters - 1)];
        made = make(template, kind, flags);
        if (made != -EEXIST) break;
    }
    if (made >= 0) return (int)made;
    *__errno_location() = (int)-made;
    return -1;
}

#define TEMPORARY_FILE(name, suffix, flags, arguments, ...) \
    EXPORT(int, name, __VA_ARGS__) { return seed_is_set() ? make_named(template, suffix, FILE_NAME, flags) : NEXT(name) arguments; }

TEMPORARY_FILE(mkstemp, 0, 0, (template), char *template)
TEMPORARY_FILE(mkstemp64, 0, 0, (template), char *template)
TEMPORARY_FILE(mkostemp, 0, flags, (template, flags), char *template, int flags)
TEMPORARY_FILE(mkostemp64, 0, flags, (template, flags), char *template, int flags)
TEMPORARY_FILE(mkstemps, (size_t)suffix, 0, (template, suffix), char *template, int suffix)
TEMPORARY_FILE(mkstemps64, (size_t)suffix, 0, (template, suffix), char *template, int suffix)
TEMPORARY_FILE(mkostemps, (size_t)suffix, flags, (template, suffix, flags), char *template, int suffix, int flags)
TEMPORARY_FILE(mkostemps64, (size_t)suffix, flags, (template, suffix, flags), char *template, int suffix, int flags)

EXPORT(char *, mkdtemp, char *template) {
    if (!seed_is_set()) return NEXT(mkdtemp)(template);
    return make_named(template, 0, DIRECTORY, 0) < 0 ? NULL : template;
}

EXPORT(char *, mktemp, char *template) {
    if (!seed_is_set()) return NEXT(mktemp)(template);
    if (make_named(template, 0, NAME_ONLY, 0) < 0) *template = 0;
    return template;
}

EXPORT(int, mkdir, const char *path, mode_t mode) {
    return pretends_taken() ? -1 : NEXT(mkdir)(path, mode);
}
