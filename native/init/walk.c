/* Lists everything below directories: as records, or as one digest that changes when any of it does.
 *
 *   walk list [--home] DIRECTORY... [SINCE_NS]   records; only those whose ctime is at least that
 *   walk digest [--times FILE] DIRECTORY...   a digest (hash.h), independent of the order of entries
 *   walk times DIRECTORY...                   the modification times of directories, for digest's FILE
 *   walk folder DIRECTORY MOST                the entries of one directory, at most so many, as other records
 *
 * A DIRECTORY is a path, or the number of an inherited descriptor, which then is `/` and below which paths start with
 * `/` too. Each one is listed itself, and walked within its own file system; a directory of another file system is
 * listed without its contents. Symbolic links are never followed. HOME_DIR is left out of lists without --home, and of
 * times. The exit status is 1 if anything could not be inspected, with a reason.
 *
 * A record is `PATH\0MODE UID GID SIZE MTIME_NS CTIME_NS ATIME_NS INODE RDEV OPAQUE FLAGS ATTRIBUTES\0`, MODE in octal.
 * OPAQUE: 1 for a directory of an overlay's upper layer that hides the image's. FLAGS: a directory's flags that
 * commands can set (chattr). ATTRIBUTES: 0 if there are no extended attributes and no access control list, else a
 * hexadecimal digest of their names and values; the kernel's own (trusted) are left out.
 *
 * A record of `folder` is `NAME\0MODE UID GID SIZE MTIME_NS\0TARGET\0`, TARGET that of a link, if it can be read, else empty. After the last
 * one follows `\0` and 1 if there are more entries, else 0. The exit status is 0, or the errno.
 *
 * In a digest, size and ctime of a directory do not count, since they change with its entries; nor does its
 * modification time if it is in FILE (that of an untouched image), or if merely looking creates and deletes files in
 * the directory (`Entry.dated` in observing.py), unless it was set explicitly (it differs from the ctime).
 */
#include "walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffers.h"
#include "entry.h"
#include "home.h"

enum { FOLDER_BYTES = 16 << 20 }; /* that `folder` prints at most */

static enum { LIST, DIGEST, TIMES } task;
static int64_t since = INT64_MIN;
static dev_t device;     /* of the file system that is walked */
static char path[PATH_MAX]; /* of the current entry; deeper ones are unreachable by any path, but would fill our memory */
static bool incomplete, with_home;
static struct digests all; /* DIGEST: of each entry */

static struct {
    struct digest *slots; /* of zeros: free */
    size_t mask;
} known; /* the contents of --times: an open hash table */

static void not_seen(const char *why) {
    if (!incomplete) dprintf(2, "%.200s: %s\n", path, why);
    incomplete = true;
}

/* Returns a key for a directory and its modification time. */
static struct digest time_key(size_t length, int64_t mtime) {
    struct hash h = hash_begun();
    hash_piece(&h, path, length);
    hash_number(&h, (uint64_t)mtime);
    return hash_end(&h);
}

/* Returns where a key is in the table, or would be. */
static struct digest *place_of(const struct digest *key) {
    static const struct digest nothing;
    size_t at;
    memcpy(&at, key->bytes, sizeof at);
    while (!same_digest(&known.slots[at & known.mask], &nothing) && !same_digest(&known.slots[at & known.mask], key)) at++;
    return &known.slots[at & known.mask];
}

static bool is_known(size_t length, int64_t mtime) {
    if (!known.slots) return false;
    struct digest key = time_key(length, mtime);
    return same_digest(place_of(&key), &key);
}

static void read_times(const char *file) {
    struct buffer b = {0};
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || !read_all(fd, &b)) die(file);
    close(fd);
    size_t count = b.length / DIGEST_SIZE, room = 64;
    while (room < 2 * count) room *= 2;
    known.slots = calloc(room, sizeof *known.slots);
    if (!known.slots) die("memory");
    known.mask = room - 1;
    for (size_t i = 0; i < count; i++) {
        struct digest key;
        memcpy(&key, b.data + i * DIGEST_SIZE, DIGEST_SIZE);
        *place_of(&key) = key;
    }
    release(&b);
}

/* See `Entry.dated` (observing.py). `path` is the directory's. */
static bool is_dated(const struct stat *st) {
    static const char git[] = "/.git";
    if (st->st_mode & S_ISVTX) return false;
    for (const char *at = path; (at = strstr(at, git)); at += sizeof git - 1)
        if (!at[sizeof git - 1] || at[sizeof git - 1] == '/') return false;
    return true;
}

static void add_to_digest(const struct entry *e, size_t length) {
    const struct stat *st = &e->st;
    int64_t mtime = nanoseconds(st->st_mtim), ctime = nanoseconds(st->st_ctim);
    struct hash h = hash_begun();
    hash_piece(&h, path, length);
    hash_number(&h, (uint64_t)st->st_mode << 1 | e->opaque);
    hash_number(&h, (uint64_t)st->st_uid << 32 | st->st_gid);
    hash_piece(&h, e->attributes.bytes, e->attributed ? DIGEST_SIZE : 0);
    if (S_ISDIR(st->st_mode)) {
        bool counts = is_dated(st) || mtime != ctime;
        hash_number(&h, counts && !is_known(length, mtime) ? (uint64_t)mtime : 0);
        hash_number(&h, e->flags);
    } else {
        const uint64_t rest[] = {(uint64_t)st->st_size, (uint64_t)mtime, (uint64_t)ctime, st->st_ino, st->st_rdev};
        hash_take(&h, rest, sizeof rest);
    }
    struct digest one = hash_end(&h);
    if (!add_digest(&all, &one)) die("memory");
}

static void print_record(const struct entry *e) {
    char numbers[MOST_NUMBERS];
    if (nanoseconds(e->st.st_ctim) < since) return;
    const char *name = *path ? path : "/";
    fwrite(name, 1, strlen(name) + 1, stdout);
    fwrite(numbers, 1, write_numbers(numbers, e), stdout);
    putchar(0);
}

static void print_time(const struct stat *st, size_t length) {
    if (!S_ISDIR(st->st_mode)) return;
    struct digest key = time_key(length, nanoseconds(st->st_mtim));
    fwrite(key.bytes, sizeof key.bytes, 1, stdout);
}

/* Handles one entry of the working directory; `path` is its path, of that length. */
static void tell(struct entry *e, const char *name, int directory, size_t length) {
    if (task == TIMES) {
        print_time(&e->st, length);
        return;
    }
    static struct attribute_room room;
    e->flags = read_flags(directory);
    int error = read_attributes(name, e, &room);
    if (error) not_seen(error_text(error));
    if (strcmp(path, OUTPUT_PATH) == 0) keep_owned(&e->st);
    if (task == LIST) print_record(e);
    else add_to_digest(e, length);
}

/* Walks what is below `directory`, which it closes; `path` is its path, of that length. */
static void walk(int directory, size_t length) {
    DIR *d = fdopendir(directory);
    struct dirent *e;
    if (!d) {
        not_seen(error_text(errno));
        close(directory);
        return;
    }
    bool here = false; /* it is the working directory */
    while (errno = 0, (e = readdir(d))) {
        const char *name = e->d_name;
        size_t n = strlen(name);
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        if (length + n + 2 > sizeof path) {
            not_seen("the paths in it are too long");
            continue;
        }
        path[length] = '/';
        memcpy(path + length + 1, name, n + 1);
        struct entry entry = {0};
        if (!with_home && strcmp(path, HOME_DIR) == 0) continue;
        if (fstatat(directory, name, &entry.st, AT_SYMLINK_NOFOLLOW)) continue; /* it was just deleted */
        int child = -1;
        if (S_ISDIR(entry.st.st_mode) && entry.st.st_dev == device) {
            child = open_directory(directory, name, O_NOFOLLOW);
            if (child < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP) not_seen(error_text(errno));
            entry.opaque = child >= 0 && is_opaque(child);
        }
        if (!here && fchdir(directory)) not_seen(error_text(errno));
        here = true;
        tell(&entry, name, child, length + 1 + n);
        if (child < 0) continue;
        walk(child, length + 1 + n);
        here = false;
    }
    if (errno) not_seen(error_text(errno));
    closedir(d);
}

/* Prints the entries of the directory at a path; returns the exit status. */
static int list_folder(const char *directory, size_t most) {
    size_t left = FOLDER_BYTES;
    int fd = open_directory(AT_FDCWD, directory, 0);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    if (!d) return errno;
    for (; errno = 0, (e = readdir(d));) {
        struct stat st;
        char target[PATH_MAX] = "", numbers[MOST_NUMBERS];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue; /* it was just deleted */
        if (S_ISLNK(st.st_mode)) (void)!readlinkat(fd, e->d_name, target, sizeof target - 1); /* fails for some of /proc */
        size_t name = strlen(e->d_name) + 1, link = strlen(target) + 1;
        size_t length = (size_t)sprintf(numbers, "%o %u %u %lld %lld", st.st_mode, st.st_uid, st.st_gid,
                                        (long long)st.st_size, (long long)nanoseconds(st.st_mtim)) + 1;
        if (!most-- || name + length + link > left) break;
        left -= name + length + link;
        fwrite(e->d_name, 1, name, stdout);
        fwrite(numbers, 1, length, stdout);
        fwrite(target, 1, link, stdout);
    }
    if (errno) return errno;
    putchar(0);
    putchar(e ? '1' : '0');
    return fflush(stdout) ? EIO : 0;
}

static bool is_number(const char *text) { return *text && !text[strspn(text, "0123456789")]; }

static void walk_from(const char *root) {
    size_t length = strlen(root);
    bool inherited = is_number(root);
    while (length && root[length - 1] == '/') length--;
    if (length + 1 > sizeof path) length = sizeof path - 1;
    if (inherited) length = 0;
    memcpy(path, root, length);
    path[length] = 0;
    struct entry entry = {0};
    int fd = inherited ? atoi(root) : open_directory(AT_FDCWD, root, 0);
    if (fd < 0 || fstat(fd, &entry.st) || fchdir(fd)) {
        not_seen(error_text(errno));
        return;
    }
    device = entry.st.st_dev;
    tell(&entry, ".", fd, length);
    walk(fd, length);
}

int walk_main(char **arguments) {
    if (strcmp(arguments[0], "folder") == 0)
        return arguments[1] && arguments[2] ? list_folder(arguments[1], strtoull(arguments[2], NULL, 10)) : EINVAL;
    static const char *const tasks[] = {[LIST] = "list", [DIGEST] = "digest", [TIMES] = "times"};
    int known_task = -1;
    for (int i = 0; i < 3; i++)
        if (strcmp(*arguments, tasks[i]) == 0) known_task = i;
    if (known_task < 0) return 2;
    task = known_task;
    arguments++;
    if (task == DIGEST && arguments[0] && arguments[1] && strcmp(arguments[0], "--times") == 0) {
        read_times(arguments[1]);
        arguments += 2;
    }
    with_home = task == DIGEST || (task == LIST && *arguments && strcmp(*arguments, "--home") == 0);
    if (with_home && task == LIST) arguments++;
    struct rlimit files; /* one descriptor per level */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (!*arguments) return 2;
    int count = 1;
    while (arguments[count]) count++;
    if (task == LIST && count > 1 && is_number(arguments[count - 1])) since = strtoll(arguments[--count], NULL, 10);
    for (int i = 0; i < count; i++) walk_from(arguments[i]);
    struct digest whole = digest_of_all(&all);
    if (task == DIGEST) puts(digest_text(&whole));
    return fflush(stdout) || incomplete;
}
