#include "requests.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "action.h"
#include "attributes.h"
#include "confine.h"
#include "connections.h"
#include "exec.h"
#include "home.h"
#include "inner.h"
#include "processes.h"
#include "shell.h"
#include "terminal.h"
#include "waiting.h"

static void start_run(int client, const struct field *f) {
    if (guest.mode == SHELL_PROMPT) {
        if (!shell_has_terminal()) {
            char name[256];
            foreground_name(name, sizeof name);
            answer_text(client, ANSWER_BUSY, "%s", name);
            return;
        }
    }
    begin_action(RUN, client, number_of(f[0], MAX_TIME_US), (size_t)number_of(f[1], MAX_OUTPUT));
    if (guest.mode == SHELL_PROMPT) leave_prompt();
    append(&action.pending, f[2].data, f[2].length);
    remember_processes();
    want_shell();
    if (guest.mode == SHELL_IDLE) feed_command();
}

static void start_keys(int client, const struct field *f) {
    begin_action(KEYS, client, number_of(f[0], MAX_TIME_US), 0);
    action.quiet_until = action.started + number_of(f[1], MAX_TIME_US);
    want_shell();
    append(&action.pending, f[2].data, f[2].length);
    action.shown = guest.mode == SHELL_PROMPT ? UINT64_MAX : guest.terminal_count;
    to_prompt();
}

static void tell_terminal(int client) {
    struct winsize size = {0};
    ioctl(guest.master, TIOCGWINSZ, &size);
    answer_text(client, ANSWER_SIZE, "%d %d", size.ws_col, size.ws_row);
    answer(client, ANSWER_TERMINAL, guest.terminal.data, guest.terminal.length);
}

static void tell_state(int client) {
    bool starts = (guest.mode == SHELL_STARTING || guest.mode == SHELL_GONE) && !guest.unready;
    if (guest.dump_ready) answer(client, ANSWER_STATE, guest.dump.data, guest.dump.length);
    else answer(client, guest.mode == SHELL_RUNNING || starts ? ANSWER_LATER : ANSWER_NOT_IDLE, "", 0);
}

static void tell_info(int client) {
    struct digest inner = inner_state(), home = home_contents(), attributes = {0}, kept = {0};
    if (guest.shell) shell_attributes(guest.shell, &attributes, &kept);
    bool ordinary = guest.shell && guest.once_ready && same_digest(&kept, &guest.fresh_kernel);
    bool plain = same_digest(&inner, &guest.fresh_inner) && same_digest(&home, &guest.fresh_home);
    answer_text(client, ANSWER_INFO, "%d %d %d %llu-%s %u %d %s %d", guest.shell, guest.mode, action.kind,
                (unsigned long long)guest.terminal_count, digest_text(&inner), guest.sequence, plain,
                digest_text(&attributes), ordinary);
}

static void attach(int client, const struct field *f) {
    if (guest.clients[client].lasting) {
        answer_text(client, ANSWER_ERROR, "attach over a connection of its own: this one could not come back from it");
        return;
    }
    struct winsize size = {
        .ws_col = (unsigned short)number_of(f[0], USHRT_MAX),
        .ws_row = (unsigned short)number_of(f[1], USHRT_MAX),
    };
    if (size.ws_col && size.ws_row) ioctl(guest.master, TIOCSWINSZ, &size);
    answer(client, ANSWER_ATTACHED, "", 0);
    if (guest.clients[client].input < 0) return;
    guest.clients[client].attached = true;
    guest.clients[client].seen = guest.terminal_count;
    want_shell();
    if (guest.mode == SHELL_PROMPT) type_keys("\f", 1); /* redraw */
    to_prompt();
}

void handle_request(int client, const struct frame *frame) {
    struct request r;
    enum request_fault fault = read_request(frame, &r);
    const struct field *f = r.fields;
    bool starts = r.type == REQUEST_RUN || r.type == REQUEST_EXECUTE || r.type == REQUEST_KEYS;
    if (fault != REQUEST_MALFORMED && starts && action.kind != NOTHING) {
        answer_text(client, ANSWER_ERROR, "busy with another request");
        return;
    }
    if (fault != REQUEST_GOOD) {
        answer_text(client, ANSWER_ERROR, "%s request", fault == REQUEST_MALFORMED ? "malformed" : "unknown");
        return;
    }
    switch ((enum request_type)r.type) {
    case REQUEST_RUN: start_run(client, f); break;
    case REQUEST_EXECUTE: start_exec(client, &r); break;
    case REQUEST_CANCEL:
        if (action.client == client) cancel_action();
        break;
    case REQUEST_KEYS: start_keys(client, f); break;
    case REQUEST_TERMINAL: tell_terminal(client); break;
    case REQUEST_STATE: tell_state(client); break;
    case REQUEST_INFO: tell_info(client); break;
    case REQUEST_NUMBER: /* it comes together with the next request */
        if (action.kind == NOTHING) number_processes((pid_t)number_of(f[0], INT_MAX));
        break;
    case REQUEST_WAITS: answer_text(client, ANSWER_WAITS, "%d", anything_waits(f[0], f[1])); break;
    case REQUEST_PUT_BACK:
        put_terminal_back(f[0].data, f[0].length, (uint64_t)number_of(f[1], INT64_MAX),
                          (unsigned)number_of(f[2], UINT_MAX));
        answer(client, ANSWER_PUT_BACK, "", 0);
        break;
    case REQUEST_ATTACH: attach(client, f); break;
    case REQUEST_QUIT:
        keep_listening();
        if (!guest.clients[client].lasting) drop_client(client);
        break;
    }
}
