/* Seals a tree of files that nobody writes to. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limit.h"
#include "look.h"
#include "memory.h"
#include "result.h"

enum { OFTEN = 64, MOST_FIELDS = 192 };

/* A walk in progress. */
struct walk {
    int root;
    uint32_t table[256]; /* of the CRC-32 that zlib computes */
    uint32_t crc;        /* of a record of each path: as they may be long, no two records are in memory at once */
    struct text waiting; /* paths of directories, each with a zero byte */
    size_t *starts;      /* theirs in `waiting`; the last one is listed next */
    size_t count, room;
    int64_t bytes; /* on the disk */
    int64_t end;
    unsigned seen;
};

static void make_table(uint32_t table[256]) {
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320 : 0);
    }
}

/* Takes text and the zero byte after it. */
static void take(struct walk *w, const char *text, size_t length) {
    for (size_t i = 0; i <= length; i++) w->crc = w->table[(w->crc ^ (unsigned char)text[i]) & 255] ^ w->crc >> 8;
}

/* Takes `PATH\0MODE UID GID SIZE INODE DEVICE MTIME CTIME\0`. */
static void take_record(struct walk *w, const char *path, size_t length, const struct stat *st) {
    char fields[MOST_FIELDS];
    int n = snprintf(fields, sizeof fields, "%u %u %u %" PRId64 " %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64, st->st_mode,
                     st->st_uid, st->st_gid, (int64_t)st->st_size, (uint64_t)st->st_ino, (uint64_t)st->st_rdev,
                     nanoseconds(st->st_mtim), nanoseconds(st->st_ctim));
    if (!S_ISDIR(st->st_mode)) w->bytes += (int64_t)st->st_blocks * 512;
    take(w, path, length);
    take(w, fields, (size_t)n);
}

static int add_directory(struct walk *w, const char *path, size_t length) {
    if (w->count == w->room) {
        size_t room = w->room ? w->room * 2 : 64;
        size_t *grown = realloc(w->starts, room * sizeof *grown);
        if (!grown) return ENOMEM;
        w->starts = grown;
        w->room = room;
    }
    w->starts[w->count++] = w->waiting.length;
    return add_text(&w->waiting, path, length) && add_text(&w->waiting, "", 1) ? 0 : ENOMEM;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static int is_entry(const struct dirent *e) { return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0; }

/* Lists one directory, `path` of that length, which begins with a slash unless it is the root's, and has room for a name. */
static int list_directory(struct walk *w, char *path, size_t length) {
    struct dirent **names = NULL;
    int n = scandirat(w->root, length ? path + 1 : ".", &names, is_entry, by_name);
    int error = n < 0 ? errno : 0;
    for (int i = 0; i < n; i++) {
        struct stat st;
        size_t added = (size_t)snprintf(path + length, NAME_MAX + 2, "/%s", names[i]->d_name);
        if (!error && ++w->seen % OFTEN == 0 && is_over(w->end)) error = ETIME;
        if (!error && fstatat(w->root, path + 1, &st, AT_SYMLINK_NOFOLLOW)) error = errno;
        if (!error) take_record(w, path, length + added, &st);
        if (!error && S_ISDIR(st.st_mode)) error = add_directory(w, path, length + added);
        free(names[i]);
    }
    free(names);
    return error;
}

static int list(struct walk *w) {
    struct stat st;
    if (fstat(w->root, &st)) return errno;
    take_record(w, "", 0, &st);
    int error = add_directory(w, "", 0);
    while (!error && w->count) {
        const char *next = w->waiting.data + w->starts[--w->count];
        size_t length = strlen(next);
        char *path = malloc(length + NAME_MAX + 2);
        if (!path) return ENOMEM;
        memcpy(path, next, length + 1);
        w->waiting.length = w->starts[w->count];
        error = list_directory(w, path, length);
        free(path);
    }
    return error;
}

/* Walks a directory and all that is below it, in an order that depends on names only, in at most `seconds` of processor
 * time: told->changed is `CRC SIZE`, the latter in bytes on the disk. */
int look_seal(int directory, double seconds, struct told *told) {
    struct walk w = {.root = directory, .crc = UINT32_MAX, .end = limit_after(seconds)};
    struct text seal = {0};
    char line[64];
    make_table(w.table);
    int error = list(&w);
    free(w.waiting.data);
    free(w.starts);
    int n = snprintf(line, sizeof line, "%" PRIu32 " %" PRId64, ~w.crc, w.bytes);
    if (!error && !add_text(&seal, line, (size_t)n)) error = ENOMEM;
    return tell(told, &seal, error);
}
