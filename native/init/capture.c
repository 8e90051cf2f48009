#include "capture.h"

#include <string.h>

void capture_start(struct capture *c, size_t limit) {
    release(&c->head);
    release(&c->tail);
    c->limit = limit;
    c->tail_at = 0;
    c->total = 0;
}

void capture_add(struct capture *c, const char *data, size_t length) {
    c->total += length;
    size_t half = c->limit / 2;
    if (c->head.length < half) {
        size_t n = half - c->head.length < length ? half - c->head.length : length;
        append(&c->head, data, n);
        data += n;
        length -= n;
    }
    size_t rest = c->limit - half;
    if (length > rest) {
        data += length - rest;
        length = rest;
    }
    while (length) { /* a ring of `rest` bytes */
        if (c->tail.length < rest && c->tail_at == c->tail.length) {
            size_t n = rest - c->tail.length < length ? rest - c->tail.length : length;
            append(&c->tail, data, n);
            c->tail_at = c->tail.length % rest;
            data += n;
            length -= n;
        } else {
            size_t n = rest - c->tail_at < length ? rest - c->tail_at : length;
            memcpy(c->tail.data + c->tail_at, data, n);
            c->tail_at = (c->tail_at + n) % rest;
            data += n;
            length -= n;
        }
    }
}
