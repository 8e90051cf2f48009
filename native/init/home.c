#include "home.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hash.h"

enum { MOST_ENTRIES = 1000, MOST_LEVELS = 20, MOST_BYTES = 1 << 20 };

/* Written by the host while we run. */
static const char *const of_the_host[] = {"fixed", "sql.pyz", "sql.socket", "times", "turn", NULL};
/* Written with every call, by ourselves, or for each snapshot. */
static const char *const of_us[] = {"control", "layer", "out", NULL};

static bool is_among(const char *name, const char *const *names) {
    while (*names && strcmp(name, *names) != 0) names++;
    return *names;
}

/* Whether a file contains the hexadecimal digits that the host writes to make each snapshot different. */
static bool is_distinction(const char *name, const char *text, size_t length) {
    return strcmp(name, "layer") == 0 && strspn(text, "0123456789abcdef") == length;
}

/* How much may still be read, since commands may have put anything there. */
struct room {
    int entries;
    off_t bytes;
};

/* Hashes a file's contents. Returns false if it is unreadable, or too large. */
static bool take_contents(struct hash *h, int at, const char *name, struct room *room) {
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
    bool whole = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (room->bytes -= st.st_size) >= 0;
    size_t length = whole ? (size_t)st.st_size : 0;
    char *text = malloc(length + 1);
    whole = whole && text && read(fd, text, length) == (ssize_t)length;
    if (whole) text[length] = 0;
    if (whole && !is_distinction(name, text, length)) {
        struct digest d = digest_of_many(text, length);
        hash_take(h, d.bytes, sizeof d.bytes);
    }
    free(text);
    if (fd >= 0) close(fd);
    return whole;
}

/* What is hashed of an entry: what shows changes within the same sandbox, or what is the same in all sandboxes even
 * if its times and its inode number differ. */
enum telling { STAMPS, CONTENTS };

/* Adds the contents of a directory, independent of their order. Returns false if that is not all. */
static bool take_directory(struct hash *to, enum telling telling, int at, const char *name, int level, struct room *room) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    bool whole = directory && level < MOST_LEVELS;
    struct digests all = {0};
    if (!directory && fd >= 0) close(fd);
    for (struct dirent *entry; whole && (entry = readdir(directory));) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (!level && is_among(entry->d_name, of_the_host)) continue;
        whole = room->entries-- > 0 && fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (!whole) break;
        bool ours = !level && is_among(entry->d_name, of_us);
        int64_t about[] = {st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                           st.st_ctim.tv_sec, st.st_ctim.tv_nsec, (int64_t)st.st_ino};
        struct hash h = hash_begun();
        hash_piece(&h, entry->d_name, strlen(entry->d_name));
        hash_take(&h, about, (ours && !S_ISREG(st.st_mode) ? 3 : telling == STAMPS ? 9 : ours ? 3 : 6) * sizeof *about);
        if (telling == CONTENTS && S_ISREG(st.st_mode)) whole = take_contents(&h, fd, entry->d_name, room);
        if (S_ISDIR(st.st_mode)) whole = take_directory(&h, telling, fd, entry->d_name, level + 1, room);
        struct digest d = hash_end(&h);
        whole = add_digest(&all, &d) && whole;
    }
    if (directory) closedir(directory);
    struct digest d = digest_of_all(&all);
    hash_take(to, d.bytes, sizeof d.bytes);
    free(all.items);
    return whole;
}

static bool look_at_home(enum telling telling, struct digest *found) {
    struct stat st;
    struct hash h = hash_begun();
    struct room room = {MOST_ENTRIES, MOST_BYTES};
    if (lstat(HOME_DIR, &st)) return false;
    hash_number(&h, st.st_mode);
    hash_number(&h, st.st_uid);
    hash_number(&h, st.st_gid);
    bool whole = take_directory(&h, telling, AT_FDCWD, HOME_DIR, 0, &room);
    *found = hash_end(&h);
    return whole;
}

/* Hashes everything except the host's files; equal in forks. Contents are read again only if something has changed. */
struct digest home_contents(void) {
    static struct digest stamps, contents;
    static bool known;
    struct digest found = {0};
    bool whole = look_at_home(STAMPS, &found);
    if (whole && known && same_digest(&found, &stamps)) return contents;
    stamps = found;
    known = whole && look_at_home(CONTENTS, &contents);
    return known ? contents : (struct digest){0};
}

/* Creates our directory, replacing whatever commands have put in its place. */
void make_home(void) {
    static const char *const parts[] = {"/run", HOME_DIR};
    for (int i = 0; i < 2; i++) {
        struct stat st;
        if (stat(parts[i], &st) == 0 && S_ISDIR(st.st_mode)) continue;
        unlink(parts[i]);
        mkdir(parts[i], 0755);
    }
}

/* Makes room for a file of ours; a directory is moved aside, since anything may use it. */
bool clear_path(const char *path) {
    char aside[] = HOME_DIR "/aside-XXXXXX";
    if (unlink(path) == 0 || errno == ENOENT) return true;
    return errno == EISDIR && mkdtemp(aside) && rename(path, aside) == 0;
}
