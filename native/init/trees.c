/* Files and folders in many small requests, for the host's `put` and `get`: each request is a separate program, so a
 * large file is transferred in several.
 *
 *   look PATH   what a path leads to: `MODE UID GID SIZE\0`, MODE in octal, and its path without links
 *   pack        contents of files. stdin: records `PATH\0OFFSET\0LENGTH\0`. stdout: for each `ERRNO LENGTH\0` and so many
 *               bytes, of a file's contents, or of a link's target. A link in a path's last part is not followed
 *   unpack      makes files. stdin: records `KIND\0PATH\0MODE\0UID\0GID\0SECONDS\0OFFSET\0LENGTH\0` and so many bytes.
 *               stdout: for each, 1 if it made something where nothing was, else 0. It stops at the first one that
 *               fails, and prints which one
 *
 * The exit status is 0, or the errno. Kinds of records: `p` is a parent directory, made if nothing is there. `d` is a
 * directory, which may exist; `f` a part of a file, which is begun at offset 0; `l` a symbolic link and `h` a hard link
 * to the target in the bytes: these replace what is there, unless that is a directory. `m` sets the mode of a directory
 * or a file, and the time of a new one. A number of -1 leaves something unchanged: the mode of an incomplete file, or
 * the owner of what the calling user makes.
 */
#include "trees.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffers.h"

enum { PACK_FIELDS = 3, UNPACK_FIELDS = 8, CHUNK = 65536 };

struct record {
    const char *kind, *path;
    long long mode, uid, gid, seconds, offset;
    const char *data;
    size_t length;
};

/* Takes the next `count` texts of a buffer; returns false if there are not so many. */
static bool take_texts(const struct buffer *b, size_t *at, const char **texts, int count) {
    for (int i = 0; i < count; i++) {
        const char *end = memchr(b->data + *at, 0, b->length - *at);
        if (!end) return false;
        texts[i] = b->data + *at;
        *at = (size_t)(end - b->data) + 1;
    }
    return true;
}

int look_at(const char *path) {
    struct stat st;
    static char real[PATH_MAX];
    if (stat(path, &st) || !realpath(path, real)) return errno;
    printf("%o %u %u %lld", st.st_mode, st.st_uid, st.st_gid, (long long)st.st_size);
    putchar(0);
    fputs(real, stdout);
    return fflush(stdout) ? EIO : 0;
}

static void tell_packed(int error, const char *data, size_t length) {
    printf("%d %zu", error, length);
    putchar(0);
    fwrite(data, 1, length, stdout);
}

/* Opens only regular files, so that a process waiting at the other end of a FIFO is not woken. */
static int read_part(const char *path, off_t offset, char *to, size_t wanted, size_t *got) {
    struct stat st;
    *got = 0;
    if (lstat(path, &st)) return errno;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(path, to, wanted);
        if (n < 0) return errno;
        *got = (size_t)n;
        return 0;
    }
    if (!S_ISREG(st.st_mode)) return EINVAL;
    int flags = O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, fd = open(path, flags | O_NOATIME);
    if (fd < 0 && errno == EPERM) fd = open(path, flags);
    if (fd < 0) return errno;
    ssize_t n = 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        while (*got < wanted && (n = pread(fd, to + *got, wanted - *got, offset + (off_t)*got)) > 0) *got += (size_t)n;
    else n = -1, errno = EINVAL;
    int error = n < 0 ? errno : 0;
    close(fd);
    return error;
}

int pack(void) {
    struct buffer b = {0};
    const char *texts[PACK_FIELDS];
    if (!read_all(0, &b)) return errno;
    for (size_t at = 0; at < b.length;) {
        if (!take_texts(&b, &at, texts, PACK_FIELDS)) return EINVAL;
        size_t wanted = strtoull(texts[2], NULL, 10), got;
        char *room = malloc(wanted + 1);
        if (!room) return ENOMEM;
        int error = read_part(texts[0], (off_t)strtoll(texts[1], NULL, 10), room, wanted, &got);
        tell_packed(error, room, got);
        free(room);
    }
    return fflush(stdout) ? EIO : 0;
}

/* Removes what is at a path; `*was` tells whether anything was. Returns an errno, 0 for none. */
static int clear_way(const char *path, bool *was) {
    struct stat st;
    *was = lstat(path, &st) == 0;
    if (!*was) return errno == ENOENT ? 0 : errno;
    if (S_ISDIR(st.st_mode)) return EISDIR;
    return unlink(path) ? errno : 0;
}

static int give(int fd, const struct record *r, bool is_new) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)r->seconds}};
    if ((r->uid >= 0 || r->gid >= 0) && fchown(fd, (uid_t)r->uid, (gid_t)r->gid)) return errno;
    if (r->mode >= 0 && fchmod(fd, (mode_t)r->mode)) return errno;
    return is_new && r->seconds >= 0 && futimens(fd, times) ? errno : 0;
}

static int make_directory(const struct record *r, bool *was) {
    struct stat st;
    *was = stat(r->path, &st) == 0;
    if (*was && S_ISDIR(st.st_mode)) return 0;
    if (*r->kind == 'p' && *was) return ENOTDIR;
    int error = *r->kind == 'p' ? 0 : clear_way(r->path, was);
    if (error) return error;
    *was = false;
    if (mkdir(r->path, (mode_t)(*r->kind == 'p' ? 0755 : 0700))) return errno;
    if (r->uid < 0 && r->gid < 0) return 0;
    return lchown(r->path, (uid_t)r->uid, (gid_t)r->gid) ? errno : 0;
}

static int write_part(const struct record *r, bool *was) {
    int error = 0, flags = O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;
    struct stat st;
    *was = true;
    if (!r->offset && (error = clear_way(r->path, was))) return error;
    int fd = open(r->path, r->offset ? flags : flags | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return errno;
    if (fstat(fd, &st)) error = errno;
    else if (!S_ISREG(st.st_mode)) error = EINVAL;
    for (size_t done = 0; !error && done < r->length;) {
        ssize_t n = pwrite(fd, r->data + done, r->length - done, (off_t)r->offset + (off_t)done);
        if (n < 0 && errno != EINTR) error = errno;
        if (n > 0) done += (size_t)n;
    }
    if (!error && r->mode >= 0) error = give(fd, r, !*was);
    if (close(fd) && !error) error = errno;
    return error;
}

static int make_link(const struct record *r, bool *was) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)r->seconds}};
    char target[PATH_MAX];
    if (r->length >= sizeof target) return ENAMETOOLONG;
    memcpy(target, r->data, r->length);
    target[r->length] = 0;
    int error = clear_way(r->path, was);
    if (error) return error;
    if (*r->kind == 'h') return link(target, r->path) ? errno : 0;
    if (symlink(target, r->path)) return errno;
    if ((r->uid >= 0 || r->gid >= 0) && lchown(r->path, (uid_t)r->uid, (gid_t)r->gid)) return errno;
    return !*was && r->seconds >= 0 && utimensat(AT_FDCWD, r->path, times, AT_SYMLINK_NOFOLLOW) ? errno : 0;
}

static int finish(const struct record *r, bool *was) {
    int fd = open(r->path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno;
    struct stat st;
    *was = true;
    int error = fstat(fd, &st) ? errno : S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ? give(fd, r, true) : EINVAL;
    close(fd);
    return error;
}

static int carry_out(const struct record *r, bool *was) {
    switch (*r->kind) {
    case 'p':
    case 'd': return make_directory(r, was);
    case 'f': return write_part(r, was);
    case 'l':
    case 'h': return make_link(r, was);
    case 'm': return finish(r, was);
    default: return EINVAL;
    }
}

int unpack(void) {
    struct buffer b = {0};
    const char *t[UNPACK_FIELDS];
    if (!read_all(0, &b)) return errno;
    for (size_t at = 0; at < b.length;) {
        if (!take_texts(&b, &at, t, UNPACK_FIELDS)) return EINVAL;
        struct record r = {
            t[0], t[1], strtoll(t[2], NULL, 10), strtoll(t[3], NULL, 10), strtoll(t[4], NULL, 10),
            strtoll(t[5], NULL, 10), strtoll(t[6], NULL, 10), b.data + at, strtoull(t[7], NULL, 10),
        };
        if (r.length > b.length - at) return EINVAL;
        at += r.length;
        bool was = false;
        int error = carry_out(&r, &was);
        if (error) {
            printf("\n%s", r.path);
            return fflush(stdout) ? EIO : error;
        }
        putchar(was ? '0' : '1');
    }
    return fflush(stdout) ? EIO : 0;
}
