#include "terminal.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "connections.h"
#include "guest.h"
#include "proc.h"

enum { TERMINAL_KEEP = 256 * 1024 }; /* bytes of its output that are kept */

/* How long a terminal must be silent to count as having processed its keys. */
enum { QUIET_US = 100000 };

/* Types what the terminal accepts without waiting. A program that writes while it reads needs its output to be read. */
void type_on(void) {
    struct buffer *b = &guest.typing;
    while (guest.typed < b->length) {
        ssize_t n = write(guest.master, b->data + guest.typed, b->length - guest.typed);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) break;
        guest.typed += (size_t)n;
    }
    release(b);
    guest.typed = 0;
    if (action.kind == KEYS && !action.pending.length) action.quiet_until = now_us() + QUIET_US;
}

void type_keys(const void *keys, size_t length) {
    append(&guest.typing, keys, length);
    type_on();
}

bool has_seen_all(const struct client *c) { return c->seen == guest.terminal_count; }

/* Passes the terminal's output on, as far as a client takes it now. A program in the terminal does not wait for clients:
 * who is behind by more than is kept goes on with the oldest that is. */
void show_terminal(int client) {
    struct client *c = &guest.clients[client];
    if (!c->attached || c->answers.length) return;
    size_t left = (size_t)(guest.terminal_count - c->seen);
    if (left > guest.terminal.length) left = guest.terminal.length;
    ssize_t n = write_now(c->output, guest.terminal.data + guest.terminal.length - left, left);
    if (n < 0) drop_client(client);
    else c->seen = guest.terminal_count - left + (size_t)n;
}

/* Keeps the terminal's output and passes it on, one turn's worth. */
void read_terminal(void) {
    char chunk[16384];
    ssize_t n;
    for (int i = 0; i < 64 && (n = read(guest.master, chunk, sizeof chunk)) > 0; i++) {
        append(&guest.terminal, chunk, (size_t)n);
        guest.terminal_count += (uint64_t)n;
        if (guest.terminal.length > 2 * TERMINAL_KEEP) {
            memmove(guest.terminal.data, guest.terminal.data + guest.terminal.length - TERMINAL_KEEP, TERMINAL_KEEP);
            guest.terminal.length = TERMINAL_KEEP;
        }
        for (int client = 0; client < MAX_CLIENTS; client++) show_terminal(client);
        if (action.kind == KEYS && !action.pending.length) action.quiet_until = now_us() + QUIET_US;
    }
}

/* Gives the terminal the contents of another sandbox's: the shell has just been made like the one there.
 *
 * Args: the kept part of the bytes sent to it, how many were sent in all, and the number of the last command. */
void put_terminal_back(const void *shown, size_t length, uint64_t count, unsigned sequence) {
    read_terminal(); /* what was printed while the shell was made */
    release(&guest.terminal);
    append(&guest.terminal, shown, length);
    guest.terminal_count = count;
    guest.sequence = sequence;
    guest.bare = false;
}

/* Whether the shell reads its terminal, or is about to: an ended program keeps it until the shell notices. */
bool shell_has_terminal(void) {
    pid_t group = 0;
    return ioctl(guest.master, TIOCGPGRP, &group) == 0 && (group == guest.shell || !group_lives(group));
}

/* Whether the shell edits a line: it takes the terminal's characters one by one. */
static bool edits_line(void) {
    struct termios modes;
    return shell_has_terminal() && tcgetattr(guest.master, &modes) == 0 && !(modes.c_lflag & ICANON);
}

/* Clears what was typed at the prompt and presses Enter, which brings the shell back to us. SIGINT makes readline forget
 * keys: so this is called until it has done so, and presses Enter again if the shell still edits a line. */
void leave_prompt(void) {
    enum { AGAIN_US = 1000000 };
    if (!action.enter_again || edits_line()) type_keys("\x15\r", 2);
    action.enter_again = now_us() + AGAIN_US;
}

/* Finds the command line of the terminal's foreground program. */
void foreground_name(char *out, size_t room) {
    pid_t group = 0;
    snprintf(out, room, "a program");
    if (ioctl(guest.master, TIOCGPGRP, &group) || group <= 0) return;
    ssize_t n = read_proc(group, "cmdline", out, room);
    for (ssize_t i = 0; i + 1 < n; i++)
        if (!out[i]) out[i] = ' ';
}
