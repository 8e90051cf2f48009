#include "action.h"

#include <unistd.h>

#include "connections.h"
#include "output.h"

void begin_action(enum action_kind kind, int client, int64_t timeout_us, size_t limit) {
    action.kind = kind;
    action.client = client;
    action.fed = action.timed_out = action.blocked = action.sampled = action.reported = action.shell_lost = false;
    action.exit_code = -1;
    action.interrupted = action.enter_again = 0;
    action.sample = 0;
    action.given = action.not_begun = action.fate = 0;
    action.settled = 0;
    action.started = now_us();
    action.deadline = action.started + timeout_us;
    action.half = action.started + timeout_us / 2;
    touch_output();
    capture_start(&action.capture, limit);
}

/* Ends the time of a run or exec. */
void cancel_action(void) {
    if (action.kind != RUN && action.kind != EXEC) return;
    int64_t now = now_us();
    if (now < action.deadline) action.deadline = now;
    action.sampled = true; /* whether it waits for something is of no interest any more */
    action.sample = 0;
}

/* Makes ready for the next action, without an answer. */
void forget_action(void) {
    capture_start(&action.capture, 0);
    release(&action.pending);
    release(&action.input_data);
    if (action.input >= 0) close(action.input);
    action.kind = NOTHING;
    action.client = action.output = action.input = -1;
    action.child = 0;
}

/* Answers the client, and leaves outputs that are still in use to drains. */
void finish_action(void) {
    bool shared = false; /* jobs have the output open */
    /* All output written before the end is in the pipe by now; jobs may write a pipe's worth more. */
    for (int i = 0; i < 4; i++) {
        char chunk[65536];
        ssize_t n = action.output >= 0 ? read(action.output, chunk, sizeof chunk) : 0;
        if (n <= 0) {
            if (action.kind == RUN && action.output >= 0) shared = n < 0;
            if (action.kind == EXEC && action.output >= 0) {
                if (n < 0) leave_to_drain(action.output);
                else close(action.output);
            }
            action.output = -1;
            break;
        }
        capture_add(&action.capture, chunk, (size_t)n);
    }
    if (action.output >= 0) { /* a job that never stops writing */
        if (action.kind == RUN) shared = true;
        else leave_to_drain(action.output);
    }
    if (shared) renew_output();
    keep_listening(); /* before the client may inspect what the command left */
    if (action.kind == RUN) {
        action.shell_lost |= guest.loss_untold;
        guest.loss_untold = false;
    }
    struct capture *c = &action.capture;
    int64_t duration = now_us() - action.started;
    answer(action.client, ANSWER_OUTPUT, c->head.data, c->head.length);
    if (c->tail.length) {
        bool full = c->tail.length == c->limit - c->limit / 2;
        size_t at = full ? c->tail_at : 0;
        answer(action.client, ANSWER_OUTPUT, c->tail.data + at, c->tail.length - at);
        if (at) answer(action.client, ANSWER_OUTPUT, c->tail.data, at);
    }
    answer_text(action.client, ANSWER_END, "%d %lld %llu %d %d %d", action.exit_code, (long long)duration,
                (unsigned long long)c->total, action.timed_out, action.blocked, action.shell_lost);
    forget_action();
}

/* Ends an action that cannot be done, with the reason. */
void refuse_action(const char *why, int error) {
    answer_text(action.client, ANSWER_ERROR, "%s: %s", why, error_text(error));
    forget_action();
}
