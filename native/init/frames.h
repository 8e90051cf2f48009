/* Requests as they come in, read from memory alone: no descriptor and no state. See protocol.h for what they are. */
#ifndef TVSNAP_FRAMES_H
#define TVSNAP_FRAMES_H

#include <stdint.h>

#include "basics.h"
#include "protocol.h"

enum frame_state { FRAME_PARTIAL, FRAME_WHOLE, FRAME_TOO_LONG };

struct frame {
    const char *body;
    uint32_t length; /* of the body; of one that is too long, what it announces */
};

/* Part of a request. */
struct field {
    const char *data;
    size_t length;
};

enum request_fault {
    REQUEST_GOOD,
    REQUEST_MALFORMED, /* fields that do not fill it exactly, or more than MAX_FIELDS of them */
    REQUEST_UNKNOWN,   /* of no known type, or with another number of fields */
};

struct request {
    char type; /* of enum request_type if it is good; 0 for an empty one */
    int count; /* of the fields */
    struct field fields[MAX_FIELDS];
    int arguments; /* EXECUTE: how many of the fields are the program and its arguments */
};

enum frame_state next_frame(const char *data, size_t length, struct frame *frame);
enum request_fault read_request(const struct frame *frame, struct request *r);
char *text_of(struct field f);
int64_t number_of(struct field f, int64_t most);

#endif
