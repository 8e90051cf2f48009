#include "entry.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Flags of files that their owners can change; others depend on a file's contents and place. */
#define SETTABLE (FS_FL_USER_MODIFIABLE | FS_JOURNAL_DATA_FL | FS_NOCOMP_FL | FS_NOCOW_FL | FS_DAX_FL | FS_PROJINHERIT_FL)

int64_t nanoseconds(struct timespec t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }

/* Opens a directory without changing its access time, if possible. */
int open_directory(int parent, const char *name, int flags) {
    flags |= O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    int fd = openat(parent, name, flags | O_NOATIME);
    return fd < 0 && errno == EPERM ? openat(parent, name, flags) : fd;
}

/* Whether a directory of an overlay's upper layer hides the image's. */
bool is_opaque(int directory) {
    char value;
    return fgetxattr(directory, "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
}

unsigned read_flags(int directory) {
    int flags = 0; /* an int, despite the request's name */
    return directory >= 0 && ioctl(directory, FS_IOC_GETFLAGS, &flags) == 0 ? (unsigned)flags & SETTABLE : 0;
}

/* Hashes the extended attributes of a file (or a link itself), independent of their order. Returns 0, or an error
 * number. */
int read_attributes(const char *path, struct entry *e, struct attribute_room *room) {
    struct digests found = {0};
    int error = 0;
    ssize_t length = llistxattr(path, room->names, sizeof room->names);
    if (length < 0 && errno != ENOTSUP && errno != ENOENT) error = errno;
    for (ssize_t at = 0; at < length; at += (ssize_t)strlen(room->names + at) + 1) {
        const char *name = room->names + at;
        if (strncmp(name, "trusted.", 8) == 0) continue;
        ssize_t size = lgetxattr(path, name, room->value, sizeof room->value);
        if (size < 0) {
            if (errno != ENODATA && errno != ENOENT) error = errno;
            continue;
        }
        struct hash h = hash_begun();
        hash_piece(&h, name, strlen(name));
        hash_piece(&h, room->value, (size_t)size);
        struct digest one = hash_end(&h);
        if (!add_digest(&found, &one)) error = ENOMEM;
    }
    e->attributed = found.count;
    if (e->attributed) e->attributes = digest_of_all(&found);
    free(found.items);
    return error;
}

/* The FIFO for output is written to with every call, and its times are set each time: see touch_output. */
void keep_owned(struct stat *st) {
    *st = (struct stat){.st_mode = st->st_mode, .st_uid = st->st_uid, .st_gid = st->st_gid};
}

/* Adds a number and a blank: printf would take longer than all other work for an entry. */
static char *put_number(char *to, uint64_t number, unsigned base) {
    char digits[24];
    int count = 0;
    do digits[count++] = (char)('0' + number % base);
    while (number /= base);
    while (count) *to++ = digits[--count];
    *to++ = ' ';
    return to;
}

static char *put_signed(char *to, int64_t number) {
    if (number < 0) *to++ = '-';
    return put_number(to, number < 0 ? -(uint64_t)number : (uint64_t)number, 10);
}

/* Writes the part of a record after the path, without its terminator; returns the length. */
size_t write_numbers(char to[MOST_NUMBERS], const struct entry *e) {
    const struct stat *st = &e->st;
    char *at = put_number(to, st->st_mode, 8);
    at = put_number(put_number(at, st->st_uid, 10), st->st_gid, 10);
    at = put_signed(put_signed(at, st->st_size), nanoseconds(st->st_mtim));
    at = put_signed(put_signed(at, nanoseconds(st->st_ctim)), nanoseconds(st->st_atim));
    at = put_number(put_number(at, st->st_ino, 10), st->st_rdev, 10);
    at = put_number(put_number(at, e->opaque, 10), e->flags, 10);
    if (e->attributed) write_digest(at, &e->attributes);
    else *at = '0';
    return (size_t)(at - to) + (e->attributed ? DIGEST_TEXT : 1);
}
