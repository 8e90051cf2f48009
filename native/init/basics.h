/* What every other file needs: buffers, complete writes, the clock. It depends on nothing of ours. */
#ifndef TVSNAP_BASICS_H
#define TVSNAP_BASICS_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "error_text.h"

/* Allocated bytes; all zero is an empty buffer. */
struct buffer {
    char *data;
    size_t length, room;
};

_Noreturn void die(const char *what);
void append(struct buffer *b, const void *data, size_t length);
void drop_beginning(struct buffer *b, size_t length);
void release(struct buffer *b);
int64_t now_us(void);
void set_nonblocking(int fd);
bool write_all(int fd, const void *data, size_t length);
ssize_t write_now(int fd, const char *data, size_t length);
bool read_all(int fd, struct buffer *b);

#endif
