/* Randomness from a seed: the same in each execution of a history. It is NO secret: whoever knows the seed knows all
 * of it, and keys and passwords made with it are worthless.
 *
 * The generator is SplitMix64, counting from a start that depends on the seed, on the process's id and command line,
 * and on how often process ids have started over (`turn`, which the host writes); docs/forks.md explains why ids are
 * the same in each execution. Each process has its own count, and a child continues its parent's with a start of its
 * own. A fork that is reseeded has a number in SEED, on which the start depends, too. */
#include "preload.h"

#include <fcntl.h>
#include <sys/syscall.h>

#define TURN "/run/tvsnap/turn"
#define SEED "/run/tvsnap/seed"

enum { LONGEST = 65536 };

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* Returns a number that depends on a file's bytes; 0 if it cannot be read. */
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

static uint64_t program, start, count, mark;
static long owner;

void draw(void *buffer, size_t length) {
    unsigned char *at = buffer;
    size_t words = (length + 7) / 8;
    long process = kernel(SYS_getpid, 0, 0, 0, 0);
    uint64_t marked = seed_mark();
    if (process != owner || marked != mark) {
        if (!program) program = mix(file_number("/proc/self/cmdline") ^ mix(file_number(TURN))) | 1;
        start = mix(mix(mix(seed() + 1) + file_number(SEED) + program) + (uint64_t)process);
        owner = process;
        mark = marked;
    }
    uint64_t first = __atomic_fetch_add(&count, words, __ATOMIC_RELAXED);
    for (size_t i = 0; i < words; i++) {
        uint64_t word = mix(start + (first + i + 1) * 0x9e3779b97f4a7c15);
        for (size_t j = 0; j < 8 && i * 8 + j < length; j++) at[i * 8 + j] = (unsigned char)(word >> 8 * j);
    }
}

/* Fills a buffer from the seed, or from the kernel if there is no seed. */
static void fill(void *buffer, size_t length) {
    unsigned char *at = buffer;
    if (seed_is_set()) draw(buffer, length);
    else
        for (long n; length; at += n > 0 ? n : 0, length -= n > 0 ? (size_t)n : 0)
            n = kernel(SYS_getrandom, (long)at, (long)length, 0, 0);
}

/* Returns a uniformly distributed number below `limit`. */
uint32_t draw_below(uint32_t limit) {
    if (limit < 2) return 0;
    uint32_t number, least = -limit % limit;
    do fill(&number, sizeof number);
    while (number < least);
    return number % limit;
}

EXPORT(ssize_t, getrandom, void *buffer, size_t length, unsigned flags) {
    if (!seed_is_set()) return NEXT(getrandom)(buffer, length, flags);
    uint64_t before = count;
    draw(buffer, length);
    if (length == sizeof before && draws_the_same()) {
        count = before;
        ((unsigned char *)buffer)[7] &= 0x7f; /* so that mktemp accepts it */
    }
    return (ssize_t)length;
}

EXPORT(int, getentropy, void *buffer, size_t length) {
    if (!seed_is_set() || length > 256) return NEXT(getentropy)(buffer, length);
    draw(buffer, length);
    return 0;
}

EXPORT(uint32_t, arc4random, void) {
    uint32_t number;
    fill(&number, sizeof number);
    return number;
}

EXPORT(void, arc4random_buf, void *buffer, size_t length) { fill(buffer, length); }

EXPORT(uint32_t, arc4random_uniform, uint32_t limit) { return draw_below(limit); }
