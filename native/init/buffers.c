#include "buffers.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Buffers of up to 256 KiB get a place in memory that is always mapped, so that what PID 1 has mapped does not depend
 * on the requests that it has had (see native/rewind/changes.c). Larger ones use mmap. What a buffer used is returned
 * at once, since all memory is in every snapshot. */
enum { PLACE = 1 << 18, PLACES = 32, SMALLEST = 4096 };
static _Alignas(SMALLEST) char places[PLACES][PLACE];
static bool taken[PLACES];

static int place_of(const char *data) {
    return data >= places[0] && data < places[0] + sizeof places ? (int)((data - places[0]) / PLACE) : -1;
}

/* Returns memory of at least `*room` bytes, and how much there is. */
static char *take(size_t *room) {
    for (int i = 0; *room <= PLACE && i < PLACES; i++)
        if (!taken[i]) {
            taken[i] = true;
            *room = PLACE;
            return places[i];
        }
    void *data = mmap(NULL, *room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) die("memory");
    return data;
}

static void give_back(char *data, size_t room) {
    int i = place_of(data);
    if (i < 0) {
        munmap(data, room);
    } else {
        madvise(data, room, MADV_DONTNEED);
        taken[i] = false;
    }
}

static void reserve(struct buffer *b, size_t more) {
    if (b->length + more <= b->room) return;
    size_t room = b->room ? b->room : SMALLEST;
    while (room < b->length + more) room *= 2;
    if (b->data && place_of(b->data) < 0) {
        void *moved = mremap(b->data, b->room, room, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED) die("memory");
        b->data = moved;
    } else {
        char *data = take(&room);
        if (b->data) {
            memcpy(data, b->data, b->length);
            give_back(b->data, b->room);
        }
        b->data = data;
    }
    b->room = room;
}

void append(struct buffer *b, const void *data, size_t length) {
    if (!length) return; /* the data may be NULL then */
    reserve(b, length);
    memcpy(b->data + b->length, data, length);
    b->length += length;
}

/* Removes the beginning of `b`; removing all of it frees its memory. */
void drop_beginning(struct buffer *b, size_t length) {
    if (length == b->length) {
        release(b);
    } else if (length) {
        memmove(b->data, b->data + length, b->length - length);
        b->length -= length;
    }
}

void release(struct buffer *b) {
    if (b->data) give_back(b->data, b->room);
    memset(b, 0, sizeof *b);
}

/* Appends all that is left to read; returns false on an error. */
bool read_all(int fd, struct buffer *b) {
    char chunk[65536];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) > 0) append(b, chunk, (size_t)n);
    return n == 0;
}
