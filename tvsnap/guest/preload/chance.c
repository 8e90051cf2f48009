/* Randomness by a seed: the same in each execution of a history. It is NO secret: who knows the seed knows all of it, and
 * keys and passwords made with it are worth nothing.
 *
 * The generator is SplitMix64, counting from a start that depends on the seed, on the process's id and command line, and
 * on how often process ids have begun anew (`turn`, which the host writes): see docs/forks.md for why ids are the same in
 * each execution. The count is the process's own, and a child goes on from its parent's with a start of its own. */
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#define TURN "/run/tvsnap/turn"

enum { LONGEST = 65536, TRIES = 238328 };

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* A number for a file's bytes; 0 for one that cannot be read. */
static uint64_t file_number(const char *path) {
    unsigned char data[1024];
    uint64_t number = 0;
    long fd = kernel(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0), n;
    if (fd < 0) return 0;
    for (long left = LONGEST; left > 0 && (n = kernel(SYS_read, fd, (long)data, sizeof data, 0)) > 0; left -= n)
        for (long i = 0; i < n; i++) number = mix(number + data[i] + 1);
    kernel(SYS_close, fd, 0, 0, 0);
    return number;
}

static uint64_t program, start, count;
static long owner;

void draw(void *buffer, size_t length) {
    unsigned char *at = buffer;
    size_t words = (length + 7) / 8;
    long process = kernel(SYS_getpid, 0, 0, 0, 0);
    if (process != owner) {
        if (!program) program = mix(file_number("/proc/self/cmdline") ^ mix(file_number(TURN))) | 1;
        start = mix(mix(mix(seed() + 1) + program) + (uint64_t)process);
        owner = process;
    }
    uint64_t first = __atomic_fetch_add(&count, words, __ATOMIC_RELAXED);
    for (size_t i = 0; i < words; i++) {
        uint64_t word = mix(start + (first + i + 1) * 0x9e3779b97f4a7c15);
        for (size_t j = 0; j < 8 && i * 8 + j < length; j++) at[i * 8 + j] = (unsigned char)(word >> 8 * j);
    }
}

static uint32_t draw_number(void) {
    uint32_t number;
    draw(&number, sizeof number);
    return number;
}

EXPORT(ssize_t, getrandom, void *buffer, size_t length, unsigned flags) {
    if (!seed_is_set()) return NEXT(getrandom)(buffer, length, flags);
    draw(buffer, length);
    return (ssize_t)length;
}

EXPORT(int, getentropy, void *buffer, size_t length) {
    if (!seed_is_set() || length > 256) return NEXT(getentropy)(buffer, length);
    draw(buffer, length);
    return 0;
}

EXPORT(uint32_t, arc4random, void) {
    return seed_is_set() ? draw_number() : NEXT(arc4random)();
}

EXPORT(void, arc4random_buf, void *buffer, size_t length) {
    if (seed_is_set()) draw(buffer, length);
    else NEXT(arc4random_buf)(buffer, length);
}

EXPORT(uint32_t, arc4random_uniform, uint32_t limit) {
    if (!seed_is_set()) return NEXT(arc4random_uniform)(limit);
    if (limit < 2) return 0;
    uint32_t number, least = -limit % limit; /* so that each remainder is as likely */
    while ((number = draw_number()) < least) {}
    return number % limit;
}

/* Names of temporary files: the C library's functions draw them without calling one that we could replace. */

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

/* Replaces the six X before the suffix until what results is new; returns what `make` did, or -1 and sets errno. */
static int make_named(char *template, size_t suffix, int kind, int flags) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t length = length_of(template);
    long made = -EINVAL;
    bool right = length >= 6 + suffix;
    char *x = template + length - suffix - 6;
    for (int i = 0; right && i < 6; i++) right = x[i] == 'X';
    for (int i = 0; right && i < TRIES; i++) {
        for (int j = 0; j < 6; j++) x[j] = letters[own_arc4random_uniform(sizeof letters - 1)];
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
