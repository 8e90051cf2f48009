/* Growing buffers. */
#ifndef TVSNAP_BUFFERS_H
#define TVSNAP_BUFFERS_H

#include "basics.h"

/* Allocated bytes; all zero is an empty buffer. */
struct buffer {
    char *data;
    size_t length, room;
};

void append(struct buffer *b, const void *data, size_t length);
void drop_beginning(struct buffer *b, size_t length);
void release(struct buffer *b);
bool read_all(int fd, struct buffer *b);

#endif
