/* The time of day. */
#include "preload.h"

#include <linux/stat.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/timeb.h>

static bool shows_time_of_day(clockid_t id) {
    return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_REALTIME_ALARM || id == CLOCK_TAI;
}

EXPORT(int, clock_gettime, clockid_t id, struct timespec *now) {
    int result = NEXT(clock_gettime)(id, now);
    if (result == 0 && shows_time_of_day(id)) *now = shown_timespec(*now);
    return result;
}

static struct timespec now_shown(void) {
    struct timespec now;
    own_clock_gettime(CLOCK_REALTIME, &now);
    return now;
}

EXPORT(int, gettimeofday, struct timeval *now, void *zone) {
    if (zone) *(struct timezone *)zone = (struct timezone){0};
    if (now) {
        struct timespec t = now_shown();
        *now = (struct timeval){.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
    }
    return 0;
}

EXPORT(time_t, time, time_t *now) {
    time_t seconds = now_shown().tv_sec;
    if (now) *now = seconds;
    return seconds;
}

EXPORT(int, timespec_get, struct timespec *now, int base) {
    if (base != TIME_UTC) return NEXT(timespec_get)(now, base);
    *now = now_shown();
    return base;
}

EXPORT(int, ftime, struct timeb *now) {
    struct timespec t = now_shown();
    *now = (struct timeb){.time = t.tv_sec, .millitm = (unsigned short)(t.tv_nsec / 1000000)};
    return 0;
}

/* Programs that bypass the C library's functions by its `syscall`. */

enum { FUTEX_WAIT_UNTIL = 9, FUTEX_BY_REALTIME = 256 };

EXPORT(long, syscall, long number, long a, long b, long c, long d, long e, long f) {
    struct timespec until;
    switch (number) {
    case SYS_clock_gettime: return own_clock_gettime((clockid_t)a, (struct timespec *)b);
    case SYS_gettimeofday: return own_gettimeofday((struct timeval *)a, (void *)b);
#ifdef SYS_time
    case SYS_time: return own_time((time_t *)a);
#endif
    case SYS_getrandom:
        if (!seed_is_set()) break;
        draw((void *)a, (size_t)b);
        return b;
    case SYS_futex:
        if ((b & ~128) == (FUTEX_WAIT_UNTIL | FUTEX_BY_REALTIME) && d) {
            until = real_timespec(*(const struct timespec *)d);
            d = (long)&until;
        }
        break;
    }
    long result = NEXT(syscall)(number, a, b, c, d, e, f);
    if (result) return result;
    switch (number) {
#ifdef SYS_stat
    case SYS_stat:
    case SYS_lstat:
#endif
    case SYS_fstat: show_times((struct stat *)b); break;
    case SYS_newfstatat: show_times((struct stat *)c); break;
    case SYS_statx: show_statx((struct statx *)e); break;
    }
    return result;
}
