#include "basics.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

void die(const char *what) {
    dprintf(2, "tvsnap-init: %s: %s\n", what, error_text(errno));
    _exit(125);
}

/* Large buffers use mmap and are returned at once, since all memory is in every snapshot. */
static void reserve(struct buffer *b, size_t more) {
    if (b->length + more <= b->room) return;
    size_t room = b->room ? b->room : 4096;
    while (room < b->length + more) room *= 2;
    void *data = b->data ? mremap(b->data, b->room, room, MREMAP_MAYMOVE)
                         : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) die("memory");
    b->data = data;
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
    if (b->data) munmap(b->data, b->room);
    memset(b, 0, sizeof *b);
}

int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/* Writes everything, however long that takes: not for PID 1 itself. Returns false on an error. */
bool write_all(int fd, const void *data, size_t length) {
    const char *at = data;
    while (length) {
        ssize_t n = write(fd, at, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        length -= (size_t)n;
    }
    return true;
}

/* Writes what is accepted at once; returns how many bytes, or -1 if there is no reader any more. */
ssize_t write_now(int fd, const char *data, size_t length) {
    size_t done = 0;
    while (done < length) {
        ssize_t n = write(fd, data + done, length - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) return -1;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Appends all that is left to read; returns false on an error. */
bool read_all(int fd, struct buffer *b) {
    char chunk[65536];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) > 0) append(b, chunk, (size_t)n);
    return n == 0;
}
