/* Times of files, as programs see and set them. */
#include "preload.h"

#include <linux/stat.h>
#include <utime.h>

void show_times(struct stat *about) {
    about->st_atim = shown_timespec(about->st_atim);
    about->st_mtim = shown_timespec(about->st_mtim);
    about->st_ctim = shown_timespec(about->st_ctim);
}

static void show_one(struct statx_timestamp *time) {
    struct timespec shown = shown_timespec((struct timespec){.tv_sec = time->tv_sec, .tv_nsec = time->tv_nsec});
    time->tv_sec = shown.tv_sec;
    time->tv_nsec = (uint32_t)shown.tv_nsec;
}

void show_statx(struct statx *about) {
    if (about->stx_mask & STATX_ATIME) show_one(&about->stx_atime);
    if (about->stx_mask & STATX_MTIME) show_one(&about->stx_mtime);
    if (about->stx_mask & STATX_CTIME) show_one(&about->stx_ctime);
    if (about->stx_mask & STATX_BTIME) show_one(&about->stx_btime);
}

/* On 64-bit machines `struct stat64` is the same as `struct stat`, and __xstat has only one version. */
#define SHOWN(name, about, arguments, ...)         \
    EXPORT(int, name, __VA_ARGS__) {               \
        int result = NEXT(name) arguments;         \
        if (result == 0) show_times(about);        \
        return result;                             \
    }

SHOWN(stat, about, (path, about), const char *path, struct stat *about)
SHOWN(stat64, about, (path, about), const char *path, struct stat *about)
SHOWN(lstat, about, (path, about), const char *path, struct stat *about)
SHOWN(lstat64, about, (path, about), const char *path, struct stat *about)
SHOWN(fstat, about, (fd, about), int fd, struct stat *about)
SHOWN(fstat64, about, (fd, about), int fd, struct stat *about)
SHOWN(fstatat, about, (at, path, about, flags), int at, const char *path, struct stat *about, int flags)
SHOWN(fstatat64, about, (at, path, about, flags), int at, const char *path, struct stat *about, int flags)
SHOWN(__xstat, about, (version, path, about), int version, const char *path, struct stat *about)
SHOWN(__xstat64, about, (version, path, about), int version, const char *path, struct stat *about)
SHOWN(__lxstat, about, (version, path, about), int version, const char *path, struct stat *about)
SHOWN(__lxstat64, about, (version, path, about), int version, const char *path, struct stat *about)
SHOWN(__fxstat, about, (version, fd, about), int version, int fd, struct stat *about)
SHOWN(__fxstat64, about, (version, fd, about), int version, int fd, struct stat *about)
SHOWN(__fxstatat, about, (version, at, path, about, flags), int version, int at, const char *path, struct stat *about,
      int flags)
SHOWN(__fxstatat64, about, (version, at, path, about, flags), int version, int at, const char *path, struct stat *about,
      int flags)

EXPORT(int, statx, int at, const char *path, int flags, unsigned mask, struct statx *about) {
    int result = NEXT(statx)(at, path, flags, mask, about);
    if (result == 0) show_statx(about);
    return result;
}

/* Setting times: a time that a program was shown must be converted back to the real one. */

static const struct timespec *as_real(const struct timespec shown[2], struct timespec real[2]) {
    if (!shown) return NULL;
    for (int i = 0; i < 2; i++) {
        bool named = shown[i].tv_nsec == UTIME_NOW || shown[i].tv_nsec == UTIME_OMIT;
        real[i] = named ? shown[i] : real_timespec(shown[i]);
    }
    return real;
}

static const struct timeval *as_real_us(const struct timeval shown[2], struct timeval real[2]) {
    if (!shown) return NULL;
    for (int i = 0; i < 2; i++) {
        if (shown[i].tv_usec < 0 || shown[i].tv_usec > 999999) return shown; /* refused */
        struct timespec t = real_timespec((struct timespec){shown[i].tv_sec, shown[i].tv_usec * 1000});
        real[i] = (struct timeval){.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
    }
    return real;
}

EXPORT(int, utimensat, int at, const char *path, const struct timespec times[2], int flags) {
    struct timespec real[2];
    return NEXT(utimensat)(at, path, as_real(times, real), flags);
}

EXPORT(int, futimens, int fd, const struct timespec times[2]) {
    struct timespec real[2];
    return NEXT(futimens)(fd, as_real(times, real));
}

EXPORT(int, utimes, const char *path, const struct timeval times[2]) {
    struct timeval real[2];
    return NEXT(utimes)(path, as_real_us(times, real));
}

EXPORT(int, lutimes, const char *path, const struct timeval times[2]) {
    struct timeval real[2];
    return NEXT(lutimes)(path, as_real_us(times, real));
}

EXPORT(int, futimes, int fd, const struct timeval times[2]) {
    struct timeval real[2];
    return NEXT(futimes)(fd, as_real_us(times, real));
}

EXPORT(int, futimesat, int at, const char *path, const struct timeval times[2]) {
    struct timeval real[2];
    return NEXT(futimesat)(at, path, as_real_us(times, real));
}

EXPORT(int, utime, const char *path, const struct utimbuf *times) {
    if (!times) return NEXT(utime)(path, times);
    struct timespec pair[2] = {{.tv_sec = times->actime}, {.tv_sec = times->modtime}};
    return own_utimensat(-100 /* AT_FDCWD */, path, pair, 0);
}
