#include "frames.h"

#include <stdlib.h>
#include <string.h>

/* Finds the complete frame at the beginning of the bytes so far, if there is one. */
enum frame_state next_frame(const char *data, size_t length, struct frame *frame) {
    *frame = (struct frame){0};
    if (length < LENGTH_BYTES) return FRAME_PARTIAL;
    memcpy(&frame->length, data, LENGTH_BYTES);
    if (frame->length > MAX_REQUEST) return FRAME_TOO_LONG;
    if (length - LENGTH_BYTES < frame->length) return FRAME_PARTIAL;
    frame->body = data + LENGTH_BYTES;
    return FRAME_WHOLE;
}

/* Finds the fields of a request; returns false if they do not fill it exactly. */
static bool split(const char *body, size_t length, struct request *r) {
    size_t at = 1;
    while (at < length) {
        uint32_t size;
        if (length - at < LENGTH_BYTES || r->count == MAX_FIELDS) return false;
        memcpy(&size, body + at, LENGTH_BYTES);
        at += LENGTH_BYTES;
        if (size > length - at) return false;
        r->fields[r->count++] = (struct field){body + at, size};
        at += size;
    }
    return true;
}

/* Returns how many fields a request of a type has; the minimum for EXECUTE, and -1 if there is no such type. */
static int fields_of(char type) {
    switch ((enum request_type)type) {
    case REQUEST_RUN: return 3;
    case REQUEST_EXECUTE: return EXECUTE_FIXED_FIELDS + 1;
    case REQUEST_CANCEL: return 0;
    case REQUEST_KEYS: return 3;
    case REQUEST_TERMINAL: return 0;
    case REQUEST_STATE: return 0;
    case REQUEST_INFO: return 0;
    case REQUEST_NUMBER: return 1;
    case REQUEST_WAITS: return 2;
    case REQUEST_PUT_BACK: return 3;
    case REQUEST_ATTACH: return 2;
    case REQUEST_QUIT: return 0;
    }
    return -1;
}

/* Parses a request, whose fields stay in the frame. After a fault, `r` has what was read so far. */
enum request_fault read_request(const struct frame *frame, struct request *r) {
    r->type = frame->length ? frame->body[0] : 0;
    r->count = r->arguments = 0;
    if (!split(frame->body, frame->length, r)) return REQUEST_MALFORMED;
    int wanted = fields_of(r->type);
    bool fits = r->type == REQUEST_EXECUTE ? r->count >= wanted : r->count == wanted;
    if (wanted < 0 || !fits) return REQUEST_UNKNOWN;
    if (r->type != REQUEST_EXECUTE) return REQUEST_GOOD;
    r->arguments = (int)number_of(r->fields[EXECUTE_FIXED_FIELDS - 1], INT_MAX);
    return r->arguments < 1 || r->arguments > r->count - EXECUTE_FIXED_FIELDS ? REQUEST_MALFORMED : REQUEST_GOOD;
}

/* Returns a copy of a field, terminated by a NUL. */
char *text_of(struct field f) {
    char *s = malloc(f.length + 1);
    if (!s) die("memory");
    memcpy(s, f.data, f.length);
    s[f.length] = 0;
    return s;
}

/* Returns a number from 0 to `most`. */
int64_t number_of(struct field f, int64_t most) {
    char text[32];
    size_t n = f.length < sizeof text - 1 ? f.length : sizeof text - 1;
    memcpy(text, f.data, n);
    text[n] = 0;
    int64_t number = strtoll(text, NULL, 10);
    return number < 0 ? 0 : number > most ? most : number;
}
