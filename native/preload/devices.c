/* /dev/urandom and /dev/random, and the kernel's new UUIDs.
 *
 * A program that opens a device gets it; what it reads from it then comes from the seed. Reads are checked only in
 * processes that have such a device: they have opened it, or were started with it. */
#include "preload.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#define UUID_FILE "/proc/sys/kernel/random/uuid"

enum { INHERITED = 10, UNKNOWN = 0, NO_DEVICE, HAS_DEVICE };

static int devices;

static bool is_device(int fd) {
    struct stat about;
    if (kernel(SYS_fstat, fd, (long)&about, 0, 0) || !S_ISCHR(about.st_mode)) return false;
    return major(about.st_rdev) == 1 && (minor(about.st_rdev) == 8 || minor(about.st_rdev) == 9);
}

bool reads_chance(int fd) {
    if (devices == UNKNOWN) {
        int found = NO_DEVICE;
        for (int i = 0; seed_is_set() && i < INHERITED; i++)
            if (is_device(i)) found = HAS_DEVICE;
        if (devices == UNKNOWN) devices = found;
    }
    return devices == HAS_DEVICE && fd >= 0 && is_device(fd);
}

void note_device(const char *path) {
    if (path && (equal_texts(path, "/dev/urandom") || equal_texts(path, "/dev/random")) && seed_is_set()) devices = HAS_DEVICE;
}

/* Returns a file with a UUID that replaces the kernel's, which has a new one for each open(); -1 for any other path. */
int chance_file(const char *path) {
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[16];
    char text[37], *at = text;
    if (!path || !equal_texts(path, UUID_FILE) || !seed_is_set()) return -1;
    draw(bytes, sizeof bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
        *at++ = digits[bytes[i] >> 4];
        *at++ = digits[bytes[i] & 15];
    }
    *at++ = '\n';
    long fd = kernel(SYS_memfd_create, (long)"uuid", 0, 0, 0);
    if (fd < 0) return -1;
    kernel(SYS_pwrite64, fd, (long)text, sizeof text, 0);
    return (int)fd;
}

#define OPENING(name, path, arguments, ...)                             \
    EXPORT(int, name, __VA_ARGS__) {                                    \
        if (flags & O_CREAT && flags & O_EXCL && pretends_taken()) return -1; \
        int fd = chance_file(path);                                     \
        if (fd >= 0) return fd;                                         \
        note_device(path);                                              \
        return NEXT(name) arguments;                                    \
    }

/* Not variadic here: the mode is passed in the same register, and has no effect if it was not given. */
OPENING(open, path, (path, flags, mode), const char *path, int flags, mode_t mode)
OPENING(open64, path, (path, flags, mode), const char *path, int flags, mode_t mode)
OPENING(openat, path, (at, path, flags, mode), int at, const char *path, int flags, mode_t mode)
OPENING(openat64, path, (at, path, flags, mode), int at, const char *path, int flags, mode_t mode)
OPENING(__open_2, path, (path, flags), const char *path, int flags)
OPENING(__open64_2, path, (path, flags), const char *path, int flags)
OPENING(__openat_2, path, (at, path, flags), int at, const char *path, int flags)
OPENING(__openat64_2, path, (at, path, flags), int at, const char *path, int flags)

#define OPENING_STREAM(name)                                                \
    EXPORT(FILE *, name, const char *path, const char *mode) {              \
        int fd = chance_file(path);                                         \
        if (fd >= 0) return fdopen(fd, mode);                               \
        note_device(path);                                                  \
        return NEXT(name)(path, mode);                                      \
    }

OPENING_STREAM(fopen)
OPENING_STREAM(fopen64)

static ssize_t drawn(void *buffer, size_t length) {
    draw(buffer, length);
    return (ssize_t)length;
}

EXPORT(ssize_t, read, int fd, void *buffer, size_t length) {
    return reads_chance(fd) ? drawn(buffer, length) : NEXT(read)(fd, buffer, length);
}

EXPORT(ssize_t, __read_chk, int fd, void *buffer, size_t length, size_t room) {
    return reads_chance(fd) && length <= room ? drawn(buffer, length) : NEXT(__read_chk)(fd, buffer, length, room);
}

EXPORT(ssize_t, pread, int fd, void *buffer, size_t length, off_t offset) {
    return reads_chance(fd) ? drawn(buffer, length) : NEXT(pread)(fd, buffer, length, offset);
}

EXPORT(ssize_t, pread64, int fd, void *buffer, size_t length, off_t offset) {
    return reads_chance(fd) ? drawn(buffer, length) : NEXT(pread64)(fd, buffer, length, offset);
}

EXPORT(ssize_t, readv, int fd, const struct iovec *parts, int count) {
    if (!reads_chance(fd) || count < 0) return NEXT(readv)(fd, parts, count);
    ssize_t total = 0;
    for (int i = 0; i < count; i++) total += drawn(parts[i].iov_base, parts[i].iov_len);
    return total;
}

/* Streams: the C library fills their buffers without calling `read`. */

static bool stream_reads_chance(FILE *stream) { return devices == HAS_DEVICE && reads_chance(fileno(stream)); }

static size_t drawn_items(void *buffer, size_t size, size_t count) {
    draw(buffer, size * count);
    return count;
}

EXPORT(size_t, fread, void *buffer, size_t size, size_t count, FILE *stream) {
    return stream_reads_chance(stream) ? drawn_items(buffer, size, count) : NEXT(fread)(buffer, size, count, stream);
}

EXPORT(size_t, fread_unlocked, void *buffer, size_t size, size_t count, FILE *stream) {
    if (stream_reads_chance(stream)) return drawn_items(buffer, size, count);
    return NEXT(fread_unlocked)(buffer, size, count, stream);
}

EXPORT(size_t, __fread_chk, void *buffer, size_t room, size_t size, size_t count, FILE *stream) {
    if (stream_reads_chance(stream) && size * count <= room) return drawn_items(buffer, size, count);
    return NEXT(__fread_chk)(buffer, room, size, count, stream);
}

EXPORT(size_t, __fread_unlocked_chk, void *buffer, size_t room, size_t size, size_t count, FILE *stream) {
    if (stream_reads_chance(stream) && size * count <= room) return drawn_items(buffer, size, count);
    return NEXT(__fread_unlocked_chk)(buffer, room, size, count, stream);
}

#define CHARACTER(name)                                          \
    EXPORT(int, name, FILE *stream) {                            \
        unsigned char byte;                                      \
        if (!stream_reads_chance(stream)) return NEXT(name)(stream); \
        draw(&byte, 1);                                          \
        return byte;                                             \
    }

CHARACTER(fgetc)
CHARACTER(getc)
CHARACTER(fgetc_unlocked)
CHARACTER(getc_unlocked)
