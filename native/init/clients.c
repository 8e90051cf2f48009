#include "clients.h"

#include <fcntl.h>
#include <unistd.h>

#include "connections.h"
#include "guest.h"
#include "requests.h"
#include "terminal.h"

enum { REST_US = 100000 }; /* between two checks of a standard input that is at its end */

/* Makes descriptors 0 and 1 a client, before any other. */
void serve_stdio(void) {
    struct client *c = &guest.clients[0];
    *c = (struct client){.input = 0, .output = 1, .lasting = true};
    for (int fd = 0; fd < 3; fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Returns when a resting client has to be checked again; INT64_MAX if none rests. */
int64_t rest_ends(void) {
    struct client *c = &guest.clients[0];
    return c->lasting && c->ended ? c->ended + REST_US : INT64_MAX;
}

static bool is_ahead(const struct client *c) { return c->attached && guest.typing.length > TYPING_LIMIT; }

/* Returns what to poll for a client; no input while it rests, or while too many of its keys are waiting. */
struct pollfd awaited(const struct client *c) {
    if (c->answers.length) return (struct pollfd){c->output, POLLOUT, 0};
    bool rests = c->ended && now_us() < c->ended + REST_US;
    bool reads = !rests && !is_ahead(c), shows = c->attached && !has_seen_all(c); /* one socket, if attached */
    return (struct pollfd){reads || shows ? c->input : -1, (short)((reads ? POLLIN : 0) | (shows ? POLLOUT : 0)), 0};
}

/* Reads what is available, but not for as long as a client sends. */
static void read_client(int i) {
    struct client *c = &guest.clients[i];
    char chunk[65536];
    for (int turn = 0; turn < 16; turn++) {
        ssize_t n = read(c->input, chunk, sizeof chunk);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        c->ended = n <= 0 && c->lasting ? now_us() : 0;
        if (c->ended) break;
        if (n <= 0) {
            drop_client(i);
            return;
        }
        if (c->attached) {
            type_keys(chunk, (size_t)n);
            if (guest.typing.length > TYPING_LIMIT) return;
            continue;
        }
        append(&c->requests, chunk, (size_t)n);
    }
}

/* Handles complete frames, up to one whose answer cannot be sent completely. */
static void handle_frames(int i) {
    struct client *c = &guest.clients[i];
    struct buffer *b = &c->requests;
    size_t at = 0;
    struct frame frame;
    while (c->input >= 0 && !c->answers.length) {
        enum frame_state state = next_frame(b->data + at, b->length - at, &frame);
        if (state == FRAME_TOO_LONG) {
            answer_text(i, ANSWER_ERROR, "a request of %u bytes; the most is %u", frame.length, (unsigned)MAX_REQUEST);
            release(b);
            if (!c->lasting) drop_client(i);
            return;
        }
        if (state == FRAME_PARTIAL) break;
        handle_request(i, &frame);
        at += LENGTH_BYTES + (size_t)frame.length;
    }
    if (c->input >= 0) drop_beginning(b, at);
}

/* Handles a client for which poll has returned. */
void serve_client(int i) {
    struct client *c = &guest.clients[i];
    never_wait(c);
    if (c->answers.length) answer_on(i);
    else if (!is_ahead(c)) read_client(i);
    show_terminal(i);
    if (c->input >= 0 && !c->answers.length && !c->attached) handle_frames(i);
    if (c->ended && !c->answers.length) release(&c->requests); /* the rest of an incomplete frame will not come */
}
