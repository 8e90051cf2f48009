#include "timing.h"

#include <signal.h>

#include "action.h"
#include "clients.h"
#include "proc.h"
#include "processes.h"
#include "shell.h"
#include "shell_end.h"
#include "terminal.h"

enum {
    PROMPT_MS = 100,          /* in which a shell shows its prompt, if it has one */
    INTERRUPT_GRACE_MS = 150, /* between a timeout's first SIGINT and SIGKILL for what the action started */
    SHELL_GRACE_MS = 1500,    /* and SIGKILL for the shell, whose state is lost then */
};

/* Whether the shell was to leave its prompt, and has not. */
static bool is_to_enter(void) { return action.kind == RUN && guest.mode == SHELL_PROMPT && !action.timed_out; }

void check_time(void) {
    if (!guest.shell && now_us() >= guest.restart_at) restart_shell();
    int64_t now = now_us();
    if (action.kind == NOTHING) return;
    if (action.kind == KEYS) {
        bool prompted = guest.terminal_count != action.shown || now > action.started + PROMPT_MS * 1000;
        if (action.pending.length && guest.mode == SHELL_PROMPT && prompted && now > action.started + 3000) {
            /* the prompt, if any, was shown: readline would accept earlier keys as well, but they would show twice */
            struct buffer keys = action.pending;
            action.pending = (struct buffer){0};
            type_keys(keys.data, keys.length);
            release(&keys);
            now = now_us();
        }
        bool typed = !action.pending.length && !guest.typing.length;
        if (now >= action.deadline || (typed && now >= action.quiet_until)) finish_action();
        return;
    }
    if (is_to_enter() && now >= action.enter_again) leave_prompt();
    if (!action.sampled && now >= action.half) {
        action.sampled = true;
        action.sample = sleeping_time();
        action.sampled_at = now;
    }
    if (now < action.deadline) return;
    if (!action.timed_out) {
        /* On a busy machine the command may not have begun, or may just have been sampled for the first time. */
        bool begun = action.kind != RUN || action.fed;
        bool slept_long = now - action.sampled_at >= (action.deadline - action.half) / 2;
        action.blocked = begun && slept_long && action.sample && sleeping_time() == action.sample;
        action.timed_out = true;
        action.interrupted = now;
        if (action.kind == RUN) { /* first as Ctrl-C would, so that the shell aborts the whole command */
            signal_new(SIGINT);
            if (guest.shell) signal_child(guest.shell, SIGINT);
        } else {
            kill_new();
        }
        return;
    }
    bool long_ago = now - action.interrupted > SHELL_GRACE_MS * 1000;
    if (action.settled || (action.kind == RUN && !guest.shell)) {
        if (guest.shell && now < action.settled) return;
        if (guest.shell && !long_ago && shell_has_pending(SIGINT)) { /* it would interrupt the next command */
            action.settled = now + 1000;
            return;
        }
        if (!guest.shell) action.shell_lost = true;
        kill_new(); /* those that ignore SIGINT */
        finish_action();
        return;
    }
    /* A shell that has reported may still report its state, but not for ever: a forged report guarantees nothing. */
    if (long_ago || (now - action.interrupted > INTERRUPT_GRACE_MS * 1000 && !action.reported)) {
        kill_new();
        if (action.kind != RUN || !guest.shell) return;
        if (long_ago) give_shell_up();
        else signal_child(guest.shell, SIGINT);
    }
}

/* Returns milliseconds until check_time has something to do; -1 for never. */
int next_wakeup_ms(void) {
    int64_t now = now_us(), at;
    if (action.kind == NOTHING) at = INT64_MAX;
    else if (action.kind == KEYS && action.pending.length) at = now + 1000;
    else if (action.kind == KEYS && guest.typing.length) at = action.deadline;
    else if (action.kind == KEYS) at = action.quiet_until < action.deadline ? action.quiet_until : action.deadline;
    else if (action.timed_out) at = action.settled ? action.settled : now + 10000;
    else if (!action.sampled) at = action.half < action.deadline ? action.half : action.deadline;
    else at = action.deadline;
    if (is_to_enter() && action.enter_again < at) at = action.enter_again;
    if (!guest.shell && guest.restart_at < at) at = guest.restart_at;
    if (rest_ends() < at) at = rest_ends();
    if (at == INT64_MAX) return -1;
    int64_t wait = at <= now ? 0 : (at - now + 999) / 1000;
    return wait < 3600000 ? (int)wait : 3600000; /* more would not fit */
}
