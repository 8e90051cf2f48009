#include "home.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hash.h"

enum { MOST_ENTRIES = 1000, MOST_LEVELS = 20 };

/* Written by the host once we run. */
static const char *const of_the_host[] = {"fixed", "sql.pyz", "sql.socket", "times", "turn", NULL};
/* With every call, by ourselves, or for each snapshot. */
static const char *const of_us[] = {"control", "layer", "out", NULL};

static bool is_among(const char *name, const char *const *names) {
    while (*names && strcmp(name, *names) != 0) names++;
    return *names;
}

static bool all; /* what the host writes counts, too */

/* Whether a file holds what the host writes there for a snapshot, such that each is another: hexadecimal digits. */
static bool is_distinction(const char *name, const char *text, size_t length) {
    return strcmp(name, "layer") == 0 && strspn(text, "0123456789abcdef") == length;
}

/* Takes how a file begins: times can be set, and forks have others of some kinds. */
static void mix_beginning(uint64_t *hash, int at, const char *name) {
    char text[4096] = {0};
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (n > 0 && !is_distinction(name, text, (size_t)n)) *hash = mix(*hash, text, (size_t)n);
    if (fd >= 0) close(fd);
}

/* Adds what lies in a directory, in whatever order it is listed. Returns false if that is not all. */
static bool add_directory(uint64_t *sum, int at, const char *name, int level, int *room) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    bool whole = directory && level < MOST_LEVELS;
    if (!directory && fd >= 0) close(fd);
    for (struct dirent *entry; whole && (entry = readdir(directory));) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (!level && !all && is_among(entry->d_name, of_the_host)) continue;
        whole = (*room)-- > 0 && fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (!whole) break;
        int64_t about[] = {st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        size_t counts = !level && is_among(entry->d_name, of_us) ? 3 : sizeof about / sizeof *about;
        uint64_t below = 0, hash = mix(HASH_START, entry->d_name, strlen(entry->d_name) + 1);
        hash = mix(hash, about, counts * sizeof *about);
        if (S_ISREG(st.st_mode)) mix_beginning(&hash, fd, entry->d_name);
        if (S_ISDIR(st.st_mode)) whole = add_directory(&below, fd, entry->d_name, level + 1, room);
        *sum += mix(hash, &below, sizeof below);
    }
    if (directory) closedir(directory);
    return whole;
}

uint64_t mix_home(uint64_t hash, bool with_host) {
    static uint64_t looks;
    struct stat st;
    uint64_t sum = 0;
    int room = MOST_ENTRIES;
    all = with_host;
    bool whole = lstat(HOME_DIR, &st) == 0;
    uint32_t about[] = {st.st_mode, st.st_uid, st.st_gid};
    if (whole) hash = mix(hash, about, sizeof about);
    if (whole && add_directory(&sum, AT_FDCWD, HOME_DIR, 0, &room)) return mix(hash, &sum, sizeof sum);
    looks++; /* in doubt, it has changed */
    return mix(hash, &looks, sizeof looks);
}

/* Makes our directory, whatever commands have put in its place. */
void make_home(void) {
    static const char *const parts[] = {"/run", HOME_DIR};
    for (int i = 0; i < 2; i++) {
        struct stat st;
        if (stat(parts[i], &st) == 0 && S_ISDIR(st.st_mode)) continue;
        unlink(parts[i]);
        mkdir(parts[i], 0755);
    }
}

/* Makes room for a file of ours; a directory is moved aside, as it may be anything's. */
bool clear_path(const char *path) {
    char aside[] = HOME_DIR "/aside-XXXXXX";
    if (unlink(path) == 0 || errno == ENOENT) return true;
    return errno == EISDIR && mkdtemp(aside) && rename(path, aside) == 0;
}
