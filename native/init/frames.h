/* Parses requests from memory, without descriptors or state. See protocol.h for their format. */
#ifndef TVSNAP_FRAMES_H
#define TVSNAP_FRAMES_H

#include <stdint.h>

#include "basics.h"
#include "protocol.h"

enum frame_state { FRAME_PARTIAL, FRAME_WHOLE, FRAME_TOO_LONG };

struct frame {
    const char *body;
    uint32_t length; /* of the body; for a frame that is too long, the announced length */
};

/* Part of a request. */
struct field {
    const char *data;
    size_t length;
};

enum request_fault {
    REQUEST_GOOD,
    REQUEST_MALFORMED, /* its fields do not fill it exactly, or there are more than MAX_FIELDS */
    REQUEST_UNKNOWN,   /* unknown type, or wrong number of fields */
};

struct request {
    char type; /* of enum request_type if it is good; 0 for an empty one */
    int count; /* of fields */
    struct field fields[MAX_FIELDS];
    int arguments; /* EXECUTE: how many fields are the program and its arguments */
};

enum frame_state next_frame(const char *data, size_t length, struct frame *frame);
enum request_fault read_request(const struct frame *frame, struct request *r);
char *text_of(struct field f);
int64_t number_of(struct field f, int64_t most);

#endif
