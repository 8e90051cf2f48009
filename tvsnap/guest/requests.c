/* Clients: their connections, the frames they send, what is done about each, the answers. */
#include "guest.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

enum { MAX_FIELDS = 4096, MAX_REQUEST = 256 * 1024 * 1024 };

void listen_here(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = CONTROL_PATH};
    mkdir("/run", 0755);
    mkdir(HOME_DIR, 0755);
    unlink(CONTROL_PATH);
    guest.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (guest.listener < 0 || bind(guest.listener, (struct sockaddr *)&address, sizeof address) ||
        chmod(CONTROL_PATH, 0600) || listen(guest.listener, 16))
        die(CONTROL_PATH);
}

void accept_client(void) {
    int fd = accept4(guest.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (guest.clients[i] < 0) {
            guest.clients[i] = fd;
            return;
        }
    close(fd);
}

void drop_client(int i) {
    close(guest.clients[i]);
    guest.clients[i] = -1;
    guest.attached[i] = false;
    release(&guest.requests[i]);
    if (action.client == i) action.client = -1;
}

bool anyone_attached(void) {
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (guest.attached[i]) return true;
    return false;
}

void answer(int client, char type, const void *data, size_t length) {
    if (client < 0 || guest.clients[client] < 0) return;
    char head[5];
    uint32_t size = (uint32_t)length + 1;
    memcpy(head, &size, 4);
    head[4] = type;
    if (!write_all(guest.clients[client], head, 5) || !write_all(guest.clients[client], data, length))
        drop_client(client);
}

void answer_text(int client, char type, const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    answer(client, type, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

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

static uint64_t mix(uint64_t hash, const void *data, size_t length) {
    const unsigned char *at = data;
    while (length--) hash = (hash ^ *at++) * 1099511628211u; /* FNV-1a */
    return hash;
}

/* A hash of state that only we can see: the terminal's modes, and System V objects, which belong to no process. */
static uint64_t inner_state(void) {
    static const char *const objects[] = {"/proc/sysvipc/msg", "/proc/sysvipc/sem", "/proc/sysvipc/shm"};
    uint64_t hash = 14695981039346656037u;
    struct termios modes;
    if (tcgetattr(guest.master, &modes) == 0) {
        hash = mix(hash, &modes.c_iflag, sizeof modes.c_iflag);
        hash = mix(hash, &modes.c_oflag, sizeof modes.c_oflag);
        hash = mix(hash, &modes.c_lflag, sizeof modes.c_lflag);
        hash = mix(hash, modes.c_cc, sizeof modes.c_cc);
    }
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        char chunk[4096];
        ssize_t n;
        int fd = open(objects[i], O_RDONLY | O_CLOEXEC);
        while (fd >= 0 && (n = read(fd, chunk, sizeof chunk)) > 0) hash = mix(hash, chunk, (size_t)n);
        if (fd >= 0) close(fd);
    }
    return hash;
}

static void handle_request(int i, const char *body, size_t length) {
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
        append(&action.pending, f[2].data, f[2].length);
        to_prompt();
    } else if (op == 't') {
        char head[32];
        struct winsize size = {0};
        ioctl(guest.master, TIOCGWINSZ, &size);
        int n = snprintf(head, sizeof head, "%d %d", size.ws_col, size.ws_row);
        answer(i, 'W', head, (size_t)n);
        answer(i, 'T', guest.terminal.data, guest.terminal.length);
    } else if (op == 's') {
        if (guest.dump_ready) answer(i, 'D', guest.dump.data, guest.dump.length);
        else answer(i, guest.mode == SHELL_RUNNING || guest.mode == SHELL_STARTING ? 'L' : 'N', "", 0);
    } else if (op == 'i') {
        answer_text(i, 'I', "%d %d %d %llu-%llx", guest.shell, guest.mode, action.kind,
                    (unsigned long long)guest.terminal_count, (unsigned long long)inner_state());
    } else if (op == 'a' && count == 2) {
        struct winsize size = {
            .ws_col = (unsigned short)number_of(f[0], USHRT_MAX),
            .ws_row = (unsigned short)number_of(f[1], USHRT_MAX),
        };
        if (size.ws_col && size.ws_row) ioctl(guest.master, TIOCSWINSZ, &size);
        answer(i, 'A', "", 0);
        if (guest.clients[i] >= 0) {
            guest.attached[i] = true;
            if (guest.mode == SHELL_PROMPT) type_keys("\f", 1); /* redraw */
            to_prompt();
        }
    } else if (op == 'q') {
        drop_client(i);
    } else {
        answer_text(i, 'E', "unknown request");
    }
}

void read_client(int i) {
    char chunk[65536];
    for (int turn = 0; turn < 16; turn++) { /* not for as long as a client sends */
        ssize_t n = recv(guest.clients[i], chunk, sizeof chunk, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n <= 0) {
            drop_client(i);
            return;
        }
        if (guest.attached[i]) {
            type_keys(chunk, (size_t)n);
            if (guest.typing.length > TYPING_LIMIT) return;
            continue;
        }
        append(&guest.requests[i], chunk, (size_t)n);
    }
    struct buffer *b = &guest.requests[i];
    size_t at = 0;
    uint32_t size;
    while (guest.clients[i] >= 0 && b->length - at >= 4) {
        memcpy(&size, b->data + at, 4);
        if (size > MAX_REQUEST) {
            answer_text(i, 'E', "a request of %u bytes; the most is %u", size, (unsigned)MAX_REQUEST);
            drop_client(i);
            return;
        }
        if (b->length - at - 4 < size) break;
        handle_request(i, b->data + at + 4, size);
        at += 4 + (size_t)size;
    }
    if (guest.clients[i] < 0) return;
    if (at == b->length) release(b);
    else if (at) {
        memmove(b->data, b->data + at, b->length - at);
        b->length -= at;
    }
}
