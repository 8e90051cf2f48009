/* Feeds bytes as a client might send them to the parser of requests (native/init/frames.c), built with sanitizers.
 *
 *   fuzz_requests check FILE...               a line `TYPE FIELDS FAULT` for each frame in the files
 *   fuzz_requests fuzz INPUTS SEED FILE...    changes what the files hold, the same for each seed; then says in a line
 *                                             how many inputs there were, and what became of the frames in them
 *
 * It ends by a sanitizer's report, or aborts, at the first input that the parser reads wrongly.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/buffers.h"
#include "init/frames.h"

enum { MOST_FILES = 64, LONGEST_INPUT = 1 << 16, FAULTS = REQUEST_UNKNOWN + 1 };

static const char *const fault_names[FAULTS] = {"good", "malformed", "unknown"};
static unsigned long long frames_of[FAULTS], too_long, good_of[256];

static void demand(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "wrong: %s\n", what);
    abort();
}

/* Looks at all that was found in a request. */
static unsigned look(const struct frame *frame, const struct request *r, enum request_fault fault) {
    unsigned sum = (unsigned)fault;
    size_t covered = 1;
    for (int i = 0; i < r->count; i++) {
        struct field f = r->fields[i];
        demand(f.data >= frame->body && f.data + f.length <= frame->body + frame->length, "a field outside of its frame");
        int64_t number = number_of(f, MAX_OUTPUT);
        demand(number >= 0 && number <= MAX_OUTPUT, "a number out of bounds");
        char *text = text_of(f);
        demand(!text[f.length] && memcmp(text, f.data, f.length) == 0, "a text that is not its field");
        free(text);
        for (size_t j = 0; j < f.length; j++) sum = sum * 31 + (unsigned char)f.data[j];
        covered += LENGTH_BYTES + f.length;
    }
    if (fault == REQUEST_GOOD) demand(covered == frame->length, "fields that do not fill their frame");
    if (fault == REQUEST_GOOD && r->type == REQUEST_EXECUTE)
        demand(r->arguments >= 1 && EXECUTE_FIXED_FIELDS + r->arguments <= r->count, "arguments that are not there");
    return sum * 31 + (unsigned)r->count;
}

/* Parses one frame in memory that ends where it ends. */
static unsigned parse(const struct frame *frame, bool tell) {
    static struct request r;
    char *body = malloc(frame->length);
    demand(body || !frame->length, "no memory");
    if (frame->length) memcpy(body, frame->body, frame->length);
    struct frame own = {body, frame->length};
    enum request_fault fault = read_request(&own, &r);
    demand((int)fault < FAULTS, "an unknown fault");
    if (tell) printf("%c %d %s\n", r.type ? r.type : '-', r.count, fault_names[fault]);
    frames_of[fault]++;
    if (fault == REQUEST_GOOD) good_of[(unsigned char)r.type]++;
    unsigned sum = look(&own, &r, fault);
    free(body);
    return sum;
}

/* Deals with the whole frames that a buffer begins with, as clients.c does. False after one that is too long. */
static bool take_frames(struct buffer *b, unsigned *sum, bool tell) {
    size_t at = 0;
    struct frame frame;
    for (;;) {
        enum frame_state state = next_frame(b->data + at, b->length - at, &frame);
        if (state == FRAME_TOO_LONG) {
            too_long++;
            release(b);
            return false;
        }
        if (state == FRAME_PARTIAL) break;
        *sum = *sum * 31 + parse(&frame, tell);
        at += LENGTH_BYTES + (size_t)frame.length;
    }
    drop_beginning(b, at);
    return true;
}

static uint64_t chance;

static uint32_t below(uint32_t limit) {
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return limit ? (uint32_t)(chance >> 16) % limit : 0;
}

/* Parses an input as it comes at once, and in pieces: that must make no difference. */
static void run(const char *data, size_t length, bool tell) {
    struct buffer whole = {0}, pieces = {0};
    unsigned at_once = 0, piecemeal = 0;
    append(&whole, data, length);
    bool lasts = take_frames(&whole, &at_once, tell);
    size_t left = whole.length;
    release(&whole);
    if (tell) return;
    bool goes_on = true;
    for (size_t at = 0; goes_on && at < length;) {
        size_t some = 1 + below((uint32_t)(length - at < 64 ? length - at : 64));
        if (some > length - at) some = length - at;
        append(&pieces, data + at, some);
        goes_on = take_frames(&pieces, &piecemeal, false);
        at += some;
    }
    demand(at_once == piecemeal && lasts == goes_on && left == pieces.length, "pieces make a difference");
    release(&pieces);
}

static struct buffer corpus[MOST_FILES];
static uint32_t files;

static void put_length(char *at, uint32_t value) { memcpy(at, &value, sizeof value); }

/* Changes an input in one way; returns its new length. */
static size_t change(char *data, size_t length) {
    static const uint32_t lengths[] = {0, 1, 3, 4, 5, 0x7f, 0xff, 0xffff, MAX_REQUEST - 1, MAX_REQUEST, MAX_REQUEST + 1,
                                       0x7fffffff, 0x80000000, 0xfffffffb, 0xfffffffc, 0xffffffff};
    static const char letters[] = "rektsinwpaq\0zRO";
    size_t at = below((uint32_t)length), some = 1 + below(16);
    if (some > length - at) some = length - at;
    switch (below(10)) {
    case 0: if (length) data[at] = (char)(data[at] ^ (1 << below(8))); break;
    case 1: if (length) data[at] = (char)below(256); break;
    case 2: if (length) data[at] = letters[below(sizeof letters)]; break;
    case 3: if (length >= at + 4) put_length(data + at, lengths[below(sizeof lengths / sizeof *lengths)]); break;
    case 4: if (length >= at + 4) put_length(data + at, below((uint32_t)(length - at) + 2)); break;
    case 5: if (length >= 4) put_length(data, (uint32_t)length - 4); break; /* so that what is inside is looked at */
    case 6: return at; /* what follows has not come */
    case 7: /* some of it is missing */
        memmove(data + at, data + at + some, length - at - some);
        return length - some;
    case 8: /* some of it comes twice */
        if (length + some > LONGEST_INPUT) break;
        memmove(data + at + some, data + at, length - at);
        return length + some;
    case 9: { /* another goes on from there */
        const struct buffer *other = &corpus[below(files)];
        size_t from = below((uint32_t)other->length), rest = other->length - from;
        if (at + rest > LONGEST_INPUT) break;
        memcpy(data + at, other->data + from, rest);
        return at + rest;
    }
    }
    return length;
}

int main(int argc, char **argv) {
    static char data[LONGEST_INPUT];
    bool fuzz = argc > 4 && strcmp(argv[1], "fuzz") == 0;
    if (!fuzz && (argc < 3 || strcmp(argv[1], "check") != 0)) return 2;
    for (int i = fuzz ? 4 : 2; i < argc && files < MOST_FILES; i++) {
        int fd = open(argv[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0 || !read_all(fd, &corpus[files])) die(argv[i]);
        close(fd);
        if (corpus[files].length > LONGEST_INPUT) die("a file that is too long");
        run(corpus[files].data, corpus[files].length, !fuzz);
        files++;
    }
    if (!fuzz) return fflush(stdout) != 0;
    unsigned long long inputs = strtoull(argv[2], NULL, 10);
    chance = strtoull(argv[3], NULL, 10) * 2 + 0x9e3779b97f4a7c15u;
    for (unsigned long long input = 0; input < inputs; input++) {
        const struct buffer *first = &corpus[below(files)];
        size_t length = first->length;
        memcpy(data, first->data, length);
        for (uint32_t i = 1 + below(8); i; i--) length = change(data, length);
        run(data, length, false);
    }
    printf("inputs %llu too-long %llu", inputs, too_long);
    for (int i = 0; i < FAULTS; i++) printf(" %s %llu", fault_names[i], frames_of[i]);
    for (int i = 0; i < 256; i++)
        if (good_of[i]) printf(" %c %llu", i, good_of[i]);
    putchar('\n');
    return fflush(stdout) != 0;
}
