/* The library that gives a sandbox's programs a clock with a fixed start and randomness with a fixed seed.
 *
 * The loader loads it into every dynamically linked program (/etc/ld.so.preload), before the C library, so that its
 * functions replace the C library's. It is not linked with a C library, and works with glibc and musl: the functions
 * that it calls are looked up in whatever the program has loaded (lookup.c).
 *
 * Its parameters are in a file that the host writes (page.c). Without that file, all functions work as usual.
 */
#ifndef PRELOAD_H
#define PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/time.h>
#include <time.h>

/* Defines a function that replaces the C library's; `own_NAME` is its name in this library. */
#define EXPORT(result, name, ...)                                                           \
    result own_##name(__VA_ARGS__) __asm__(#name) __attribute__((visibility("default"))); \
    result own_##name(__VA_ARGS__)

/* The C library's function of that name, with the type of the one here. A program that tests whether the function
 * exists finds ours; if an older C library has none, calls fail with ENOSYS. */
#define NEXT(name)                                            \
    ({                                                        \
        static void *found;                                   \
        if (!found) found = next_symbol(#name);               \
        (__typeof__(&own_##name))(found ? found : &missing);  \
    })

#define SECOND 1000000000LL

/* lookup.c */
void *next_symbol(const char *name);
long missing(void);
long kernel(long number, long a, long b, long c, long d);
bool equal_texts(const char *a, const char *b);

/* page.c: all times are nanoseconds since 1970. */
bool clock_is_set(void);
bool seed_is_set(void);
uint64_t seed(void);
uint64_t seed_mark(void);
int64_t shown_time(int64_t real);
int64_t real_time(int64_t shown);
struct timespec shown_timespec(struct timespec real);
struct timespec real_timespec(struct timespec shown);
bool is_of_shown_clock(const struct timespec *deadline);

/* mktemp.c */
bool pretends_taken(void);
bool draws_the_same(void);

/* chance.c */
void draw(void *buffer, size_t length);
uint32_t draw_below(uint32_t limit);


/* devices.c */
bool reads_chance(int fd);
void note_device(const char *path);
int chance_file(const char *path);

/* files.c */
void show_times(struct stat *about);
struct statx;
void show_statx(struct statx *about);

int *__errno_location(void);

#endif
