#include "memory.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct facts) == 12 * sizeof(int64_t) + DIGEST_SIZE, "facts are compared as bytes");

/* Returns false if there is no memory. */
bool add_text(struct text *to, const char *data, size_t length) {
    if (length > to->room - to->length) {
        size_t room = (to->length + length) * 2;
        char *grown = realloc(to->data, room);
        if (!grown) return false;
        to->data = grown;
        to->room = room;
    }
    if (length) memcpy(to->data + to->length, data, length);
    to->length += length;
    return true;
}

struct facts facts_of(const struct entry *e) {
    const struct stat *st = &e->st;
    struct facts f = {
        .mode = st->st_mode,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .size = st->st_size,
        .mtime = nanoseconds(st->st_mtim),
        .ctime = nanoseconds(st->st_ctim),
        .atime = S_ISDIR(st->st_mode) ? nanoseconds(st->st_atim) : 0, /* for others, reading may change it */
        .inode = (int64_t)st->st_ino,
        .device = (int64_t)st->st_rdev,
        .opaque = e->opaque,
        .flags = e->flags,
        .attributed = e->attributed,
    };
    if (e->attributed) f.attributes = e->attributes;
    return f;
}

bool remember(struct memory *m, const char *path, size_t length, const struct facts *facts, bool settled) {
    if (m->count == m->room) {
        size_t room = m->room ? m->room * 2 : 64;
        struct seen *grown = realloc(m->files, room * sizeof *grown);
        if (!grown) return false;
        m->files = grown;
        m->room = room;
    }
    size_t at = m->paths.length;
    if (!add_text(&m->paths, path, length)) return false;
    m->files[m->count++] = (struct seen){.path = at, .length = length, .facts = *facts, .settled = settled};
    return true;
}

static int compare_paths(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t both = a_length < b_length ? a_length : b_length;
    int order = both ? memcmp(a, b, both) : 0;
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

static int by_path(const void *a, const void *b, void *paths) {
    const struct seen *one = *(struct seen *const *)a, *other = *(struct seen *const *)b;
    const char *from = paths;
    return compare_paths(from + one->path, one->length, from + other->path, other->length);
}

static bool put_in_order(struct memory *m) {
    if (m->in_order) return true;
    m->in_order = malloc(m->count * sizeof *m->in_order);
    if (!m->in_order) return false;
    for (size_t i = 0; i < m->count; i++) m->in_order[i] = &m->files[i];
    qsort_r(m->in_order, m->count, sizeof *m->in_order, by_path, m->paths.data);
    return true;
}

static int compare_with(const struct memory *m, const struct seen *s, const char *path, size_t length) {
    return compare_paths(path, length, m->paths.data + s->path, s->length);
}

/* Returns what was seen at a path; NULL if nothing was, or possibly if memory is short. Files are nearly always
 * requested in the order in which they were seen. */
struct seen *find_seen(struct memory *m, const char *path, size_t length) {
    if (!m->count) return NULL;
    struct seen *found = NULL;
    if (m->next < m->count && compare_with(m, &m->files[m->next], path, length) == 0) {
        found = &m->files[m->next];
    } else if (put_in_order(m)) {
        size_t low = 0, high = m->count;
        while (low < high && !found) {
            size_t middle = low + (high - low) / 2;
            int order = compare_with(m, m->in_order[middle], path, length);
            if (order == 0) found = m->in_order[middle];
            else if (order < 0) high = middle;
            else low = middle + 1;
        }
    }
    if (found) m->next = (size_t)(found - m->files) + 1;
    return found;
}

size_t bytes_of(const struct memory *m) { return m->count * sizeof *m->files + m->paths.length; }

/* Copies what was seen into an empty memory. Returns false if there is no memory; then `to` is empty. */
bool copy_memory(struct memory *to, const struct memory *from) {
    if (!from->count) return true;
    to->files = malloc(from->count * sizeof *to->files);
    if (!to->files || !add_text(&to->paths, from->paths.data, from->paths.length)) {
        forget(to);
        return false;
    }
    memcpy(to->files, from->files, from->count * sizeof *to->files);
    to->count = to->room = from->count;
    return true;
}

void forget(struct memory *m) {
    free(m->files);
    free(m->paths.data);
    free(m->in_order);
    *m = (struct memory){0};
}
