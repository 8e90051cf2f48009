/* The output of one action: the first and the last half of its limit, whatever its length. */
#ifndef TVSNAP_CAPTURE_H
#define TVSNAP_CAPTURE_H

#include "buffers.h"

struct capture {
    struct buffer head, tail; /* tail: once full, a ring buffer whose oldest byte is at tail_at */
    size_t limit, tail_at;    /* bytes */
    uint64_t total;           /* bytes seen, kept or not */
};

void capture_start(struct capture *c, size_t limit);
void capture_add(struct capture *c, const char *data, size_t length);

#endif
