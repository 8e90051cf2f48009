/* Requests: what is done about each, and the answer. protocol.py describes them. */
#include "guest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FIELDS = 4096, MOST_SEGMENTS = 64 };

char *text_of(struct field f) {
    char *s = malloc(f.length + 1);
    if (!s) die("memory");
    memcpy(s, f.data, f.length);
    s[f.length] = 0;
    return s;
}

/* A number that is not negative, at most `most`. */
int64_t number_of(struct field f, int64_t most) {
    char text[32];
    size_t n = f.length < 31 ? f.length : 31;
    memcpy(text, f.data, n);
    text[n] = 0;
    int64_t number = strtoll(text, NULL, 10);
    return number < 0 ? 0 : number > most ? most : number;
}

static void start_run(int client, struct field *f) {
    if (guest.mode == SHELL_PROMPT) {
        if (!shell_has_terminal()) {
            char name[256];
            foreground_name(name, sizeof name);
            answer_text(client, 'B', "%s", name);
            return;
        }
        type_keys("\x15\r", 2); /* clear what was typed; Enter brings the shell back to us */
    }
    begin_action(RUN, client, number_of(f[0], MAX_TIME_US), (size_t)number_of(f[1], MAX_OUTPUT));
    append(&action.pending, f[2].data, f[2].length);
    remember_processes();
    want_shell();
    if (guest.mode == SHELL_IDLE) feed_command();
}

/* Finds the fields of a request; returns how many there are, or -1 if they do not fill it exactly. */
static int split(const char *body, size_t length, struct field *f) {
    int count = 0;
    size_t at = 1;
    while (at < length) {
        uint32_t size;
        if (length - at < sizeof size || count == MAX_FIELDS) return -1;
        memcpy(&size, body + at, sizeof size);
        at += sizeof size;
        if (size > length - at) return -1;
        f[count++] = (struct field){body + at, size};
        at += size;
    }
    return count;
}

uint64_t mix(uint64_t hash, const void *data, size_t length) {
    const unsigned char *at = data;
    while (length--) hash = (hash ^ *at++) * 1099511628211u; /* FNV-1a */
    return hash;
}

/* Who last used a segment of shared memory, and when. */
struct use {
    long long id, created, by, attached, detached;
};

/* A checkpoint attaches each segment from outside, where no process has an id that we know: its use is not one of ours.
 * Returns the use before it, as far as it was seen. */
static struct use use_of_ours(struct use found) {
    static struct use seen[MOST_SEGMENTS];
    static size_t count, next;
    size_t i = 0;
    while (i < count && (seen[i].id != found.id || seen[i].created != found.created)) i++;
    if (!found.by && found.attached) return i < count ? seen[i] : found;
    if (i == count) {
        i = next++ % MOST_SEGMENTS;
        if (count < MOST_SEGMENTS) count++;
    }
    return seen[i] = found;
}

/* Takes what a table of System V objects says. It tells when each was last used, to the second: what was used within
 * the last one may be used once more without a trace, and so is never equal to anything. It tells by whom shared memory
 * was used, too: a process that still lives is not taken for another (in a fork, a server has just attached its own). */
static uint64_t mix_objects(uint64_t hash, const char *table) {
    enum { ID = 1, BY = 5, ATTACHED = 11, DETACHED = 12, CREATED = 13, COLUMNS = 16 };
    static uint64_t looks;
    struct buffer text = {0};
    int fd = open(table, O_RDONLY | O_CLOEXEC);
    bool recent = fd < 0 || !read_all(fd, &text), memory = strstr(table, "shm");
    if (fd >= 0) close(fd);
    append(&text, "", 1);
    long long now = time(NULL);
    for (char *line = text.data + strcspn(text.data, "\n"), *end; *line; line += strcspn(line, "\n")) {
        long long column[COLUMNS] = {0};
        int count = 0;
        bool used = false;
        line++;
        for (char *at = line; *at && *at != '\n' && count < COLUMNS; at = end) {
            column[count] = strtoll(at, &end, 10);
            if (end == at) end++;
            else count++;
        }
        if (memory && count > CREATED) {
            struct use use = use_of_ours(
                (struct use){column[ID], column[CREATED], column[BY], column[ATTACHED], column[DETACHED]});
            column[BY] = use.by;
            column[ATTACHED] = use.attached;
            column[DETACHED] = use.detached;
        }
        for (int i = 0; i < count; i++) used = used || (column[i] >= now - 1 && column[i] <= now + 1);
        if (used && !(memory && column[BY] > 0 && kill((pid_t)column[BY], 0) == 0)) recent = true;
        hash = mix(hash, column, sizeof column);
    }
    release(&text);
    if (!recent) return hash;
    looks++;
    return mix(hash, &looks, sizeof looks);
}

/* A hash of state that only we can see: the terminal, System V objects, which belong to no process, and whether the next
 * call is to be told of a loss. */
/* A directory and a file in it that are in no layer: who may make terminals, and see them. */
static uint64_t mix_devpts(uint64_t hash) {
    static const char *const paths[] = {"/dev/pts", "/dev/pts/ptmx"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct stat st;
        uint32_t about[3] = {0};
        if (stat(paths[i], &st) == 0) about[0] = st.st_mode, about[1] = st.st_uid, about[2] = st.st_gid;
        hash = mix(hash, about, sizeof about);
    }
    return hash;
}

uint64_t inner_state(void) {
    static const char *const objects[] = {"/proc/sysvipc/msg", "/proc/sysvipc/sem", "/proc/sysvipc/shm"};
    uint64_t hash = mix(HASH_START, &guest.loss_untold, sizeof guest.loss_untold);
    char name[64];
    struct stat st;
    int number;
    pid_t group = 0;
    hash = mix_devpts(terminal_state(hash, guest.master));
    int slave = ioctl(guest.master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    bool stopped = slave >= 0 && is_stopped(slave);
    if (slave >= 0) close(slave);
    hash = mix(hash, &stopped, sizeof stopped);
    bool away = ioctl(guest.master, TIOCGPGRP, &group) == 0 && group && group != guest.shell;
    hash = mix(hash, &away, sizeof away);
    if (ioctl(guest.master, TIOCGPTN, &number) == 0) {
        snprintf(name, sizeof name, "/dev/pts/%d", number);
        if (stat(name, &st) == 0) {
            hash = mix(hash, &st.st_mode, sizeof st.st_mode);
            hash = mix(hash, &st.st_uid, sizeof st.st_uid);
            hash = mix(hash, &st.st_gid, sizeof st.st_gid);
        }
    }
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) hash = mix_objects(hash, objects[i]);
    return hash;
}

void handle_request(int i, const char *body, size_t length) {
    struct field f[MAX_FIELDS];
    int count = split(body, length, f);
    if (count < 0) {
        answer_text(i, 'E', "malformed request");
        return;
    }
    char op = length ? body[0] : 0;
    bool starts = op == 'r' || op == 'e' || op == 'k';
    if (starts && action.kind != NOTHING) {
        answer_text(i, 'E', "busy with another request");
        return;
    }
    if (op == 'r' && count == 3) {
        start_run(i, f);
    } else if (op == 'e' && count >= 7) {
        start_exec(i, f, count);
    } else if (op == 'k' && count == 3) {
        begin_action(KEYS, i, number_of(f[0], MAX_TIME_US), 0);
        action.quiet_until = action.started + number_of(f[1], MAX_TIME_US);
        want_shell();
        append(&action.pending, f[2].data, f[2].length);
        action.shown = guest.mode == SHELL_PROMPT ? UINT64_MAX : guest.terminal_count;
        to_prompt();
    } else if (op == 't') {
        char head[32];
        struct winsize size = {0};
        ioctl(guest.master, TIOCGWINSZ, &size);
        int n = snprintf(head, sizeof head, "%d %d", size.ws_col, size.ws_row);
        answer(i, 'W', head, (size_t)n);
        answer(i, 'T', guest.terminal.data, guest.terminal.length);
    } else if (op == 's') {
        bool later = guest.mode == SHELL_RUNNING || (guest.mode == SHELL_STARTING && !guest.unready);
        if (guest.dump_ready) answer(i, 'D', guest.dump.data, guest.dump.length);
        else answer(i, later ? 'L' : 'N', "", 0);
    } else if (op == 'i') {
        uint64_t inner = inner_state();
        uint64_t attributes = guest.shell ? kernel_attributes(guest.shell, true) : 0;
        bool ordinary = guest.shell && kernel_attributes(guest.shell, false) == guest.fresh_kernel;
        answer_text(i, 'I', "%d %d %d %llu-%llx %u %d %llx %d %llx", guest.shell, guest.mode, action.kind,
                    (unsigned long long)guest.terminal_count, (unsigned long long)inner, guest.sequence,
                    mix_home(inner, false) == guest.fresh_inner, (unsigned long long)attributes, ordinary,
                    (unsigned long long)mix_home(HASH_START, true));
    } else if (op == 'n' && count == 1) { /* no answer: it comes along with what is to be done next */
        if (action.kind == NOTHING) number_processes((pid_t)number_of(f[0], INT_MAX));
    } else if (op == 'w' && count == 2) {
        answer_text(i, 'H', "%d", anything_waits(f[0], f[1]));
    } else if (op == 'p' && count == 3) {
        put_terminal_back(f[0].data, f[0].length, (uint64_t)number_of(f[1], INT64_MAX),
                          (unsigned)number_of(f[2], UINT_MAX));
        answer(i, 'P', "", 0);
    } else if (op == 'a' && guest.clients[i].lasting) {
        answer_text(i, 'E', "attach over a connection of its own: this one could not come back from it");
    } else if (op == 'a' && count == 2) {
        struct winsize size = {
            .ws_col = (unsigned short)number_of(f[0], USHRT_MAX),
            .ws_row = (unsigned short)number_of(f[1], USHRT_MAX),
        };
        if (size.ws_col && size.ws_row) ioctl(guest.master, TIOCSWINSZ, &size);
        answer(i, 'A', "", 0);
        if (guest.clients[i].input >= 0) {
            guest.clients[i].attached = true;
            want_shell();
            if (guest.mode == SHELL_PROMPT) type_keys("\f", 1); /* redraw */
            to_prompt();
        }
    } else if (op == 'q') {
        keep_listening();
        if (!guest.clients[i].lasting) drop_client(i);
    } else {
        answer_text(i, 'E', "unknown request");
    }
}
