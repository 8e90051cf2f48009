#include "reports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "action.h"
#include "attributes.h"
#include "command_line.h"
#include "connections.h"
#include "output.h"
#include "shell.h"
#include "trace_depth.h"

enum { HEADER_LIMIT = 48 }; /* bytes of a report's first line */

/* What has become of the last command, according to a report: SIGINT may keep the shell from reading it. */
enum { NOT_READ = 0, HAS_RUN = 1, NOT_BEGUN = 2 };

/* How often a command is given to the shell, and how often the shell may have failed to begin it. */
enum { MOST_GIVEN = 100, MOST_NOT_BEGUN = 3 };

/* A SIGINT that was sent shortly before the shell reports must still arrive during our command. */
enum { SETTLE_US = 3000 };

/* Returns the length of the header (newline included) at the beginning of `text`; 0 if incomplete, -1 if it is none. */
static ssize_t header_length(const char *text, size_t length) {
    for (size_t i = 0; i < length && i < HEADER_LIMIT; i++) {
        if (i == 0 && text[i] != 'S') return -1;
        if (text[i] == '\n') return (ssize_t)i + 1;
        if (text[i] < ' ' || text[i] > '~') return -1;
    }
    return length < HEADER_LIMIT ? 0 : -1;
}

/* The command is done, and its output has been written. */
static void take_header(const char *text, size_t length) {
    char line[HEADER_LIMIT + 1];
    memcpy(line, text, length);
    line[length] = 0;
    if (guest.mode == SHELL_IDLE && !set_mode(SHELL_STARTING)) return; /* it was interrupted while it waited */
    int status, ran;
    if (sscanf(line, "S%d %d\n", &status, &ran) != 2) return;
    if (action.kind != RUN || !action.fed || action.reported) return;
    action.fate = ran; /* counted with the state: a header that is not followed by all of it yet comes here again */
    if (ran != HAS_RUN && !action.timed_out) return;
    action.reported = true;
    action.exit_code = action.timed_out ? -1 : status;
    if (!action.timed_out) finish_action();
}

/* Returns the length of a state without its last line, the number of the report. */
static size_t take_number(const char *text, size_t length) {
    const char *last = memrchr(text, '\n', length);
    if (!last) return length;
    guest.report_number = (unsigned)strtoul(last + 1, NULL, 10);
    return (size_t)(last - text);
}

/* The shell waits for its next order. */
static void take_state(const char *text, size_t length) {
    length = take_number(text, length);
    release(&guest.dump);
    append(&guest.dump, text, length);
    guest.dump_ready = guest.proven = true;
    guest.unready = false;
    if (!set_mode(SHELL_IDLE)) return;
    lseek(guest.command, 0, SEEK_SET); /* for the next; and the waiting shell looks the same after each */
    if (guest.out_reader < 0) open_output();
    if (!guest.once_ready) {
        guest.once_ready = true;
        struct digest all;
        shell_attributes(guest.shell, &all, &guest.fresh_kernel);
        shorten_command_line(guest.shell, &guest.user);
    }
    if (guest.report_number) forget_nesting(guest.shell, &guest.user);
    action.not_begun += action.fed && action.fate == NOT_BEGUN;
    if (action.kind == RUN && action.timed_out) {
        action.settled = now_us() + SETTLE_US;
    } else if (action.kind == RUN && action.given < MOST_GIVEN && action.not_begun < MOST_NOT_BEGUN) {
        feed_command();
    } else if (action.kind == RUN && !guest.loss_untold) { /* for example, it has too few descriptors left: replace it */
        static const char why[] = "the shell could not open its output, and was ended\n";
        capture_add(&action.capture, why, sizeof why - 1);
        if (set_mode(SHELL_RUNNING)) give_shell_up();
    }
    if (action.kind == KEYS || anyone_attached()) to_prompt();
}

/* The shell reports `S<status> <ran>\n` as soon as a command is done, then its state and `\n<number>`, terminated by a NUL.
 * The number counts the reports for which it has not taken an order.
 *
 * Commands do not inherit the descriptor but can open it through /proc, so that anything may arrive. What cannot be
 * a report is skipped; there is one read per turn, so that a flood of reports delays nothing else. */
void read_report(void) {
    char chunk[65536];
    ssize_t n = read(guest.report, chunk, sizeof chunk);
    if (n == 0) { /* the shell was replaced (exec) or closed it: nothing will come, and poll would always return */
        close(guest.report);
        guest.report = -1;
    }
    if (n <= 0) return;
    struct buffer *b = &guest.incoming;
    append(b, chunk, (size_t)n);
    size_t at = 0;
    while (at < b->length && guest.report >= 0) {
        const char *text = b->data + at, *next, *end;
        size_t left = b->length - at;
        ssize_t header = header_length(text, left);
        if (header == 0) break;
        if (header < 0) {
            next = memchr(text + 1, 'S', left - 1);
            at = next ? (size_t)(next - b->data) : b->length;
            continue;
        }
        take_header(text, (size_t)header);
        end = memchr(text + header, 0, left - (size_t)header);
        if (!end) break;
        take_state(text + header, (size_t)(end - text - header));
        at = (size_t)(end - b->data) + 1;
    }
    if (b->length - at > MAX_SHELL_STATE) give_shell_up();
    drop_beginning(b, guest.report < 0 ? b->length : at);
}
