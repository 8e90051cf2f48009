/* Clients: their connections, the frames that they send, the answers on their way to them.
 *
 * An answer is written as far as the client takes it at once; the rest is kept until it takes more, and as long as it
 * has not taken all of it, nothing more is read from it. So nobody holds PID 1 up by not reading, and what is kept for
 * a client is never more than the answers to one request and to the action it waits for.
 *
 * One client is not like the others, if there is one: our standard input and output. It is never dropped. At the end of
 * its input nobody is there for now; its input is looked at again every so often. What could not be written stays for
 * whoever reads next, so that frames stay whole, and is lost only if writing fails.
 */
#include "guest.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_REQUEST = 256 * 1024 * 1024 };
enum { REST_US = 100000 }; /* between two looks at a standard input that is at its end */

/* Where clients connect. */
static struct sockaddr_un control = {.sun_family = AF_UNIX, .sun_path = CONTROL_PATH};

static ino_t control_inode; /* of the socket there that is ours */

/* Makes our directory, whatever commands have put in its place. */
void make_home(void) {
    static const char *const parts[] = {"/run", HOME_DIR};
    for (int i = 0; i < 2; i++) {
        struct stat st;
        if (stat(parts[i], &st) == 0 && S_ISDIR(st.st_mode)) continue;
        unlink(parts[i]);
        mkdir(parts[i], 0755);
    }
}

/* Makes room for a file of ours; a directory is moved aside, as it may be anything's. */
bool clear_path(const char *path) {
    char aside[] = HOME_DIR "/aside-XXXXXX";
    if (unlink(path) == 0 || errno == ENOENT) return true;
    return errno == EISDIR && mkdtemp(aside) && rename(path, aside) == 0;
}

/* Listens at CONTROL_PATH, instead of where we did; false, with errno, if that cannot be. */
bool listen_here(void) {
    struct stat st;
    make_home();
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return false;
    if (!clear_path(CONTROL_PATH) || bind(fd, (struct sockaddr *)&control, sizeof control) ||
        chmod(CONTROL_PATH, 0600) || listen(fd, 16) || lstat(CONTROL_PATH, &st)) {
        close(fd);
        return false;
    }
    if (guest.listener >= 0) close(guest.listener);
    guest.listener = fd;
    control_inode = st.st_ino;
    return true;
}

/* Sees to it that clients find us: commands may have removed the socket, or put another in its place. */
void keep_listening(void) {
    struct stat st;
    if (lstat(CONTROL_PATH, &st) == 0 && st.st_ino == control_inode && S_ISSOCK(st.st_mode)) return;
    while (accept_client()) continue; /* those that found us before */
    listen_here();
}

/* Makes descriptors 0 and 1 a client, before any other. */
void serve_stdio(void) {
    struct client *c = &guest.clients[0];
    *c = (struct client){.input = 0, .output = 1, .lasting = true};
    for (int fd = 0; fd < 3; fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* False if nobody waits to be. */
bool accept_client(void) {
    int fd = accept4(guest.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return false;
    /* It found us by this file, which in a fork is another than it was. Where the disk is full, no new one can be made. */
    struct stat st;
    if (lstat(CONTROL_PATH, &st) == 0) control_inode = st.st_ino;
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (guest.clients[i].input < 0) {
            guest.clients[i].input = guest.clients[i].output = fd;
            return true;
        }
    close(fd);
    return true;
}

/* Ends a connection; of the one that lasts, only what it has not taken goes. */
void drop_client(int i) {
    struct client *c = &guest.clients[i];
    release(&c->answers);
    c->taken = 0;
    if (c->lasting) return;
    release(&c->requests);
    close(c->input);
    c->input = c->output = -1;
    c->attached = false;
    if (action.client == i) action.client = -1;
}

bool anyone_attached(void) {
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (guest.clients[i].attached) return true;
    return false;
}

/* When a resting client is to be looked at again; INT64_MAX if none rests. */
int64_t rest_ends(void) {
    struct client *c = &guest.clients[0];
    return c->lasting && c->ended ? c->ended + REST_US : INT64_MAX;
}

/* What to wait for of a client; nothing while it rests, or while its keys are ahead of the program that reads them. */
struct pollfd awaited(const struct client *c) {
    if (c->answers.length) return (struct pollfd){c->output, POLLOUT, 0};
    bool rests = c->ended && now_us() < c->ended + REST_US;
    bool ahead = c->attached && guest.typing.length > TYPING_LIMIT;
    return (struct pollfd){rests || ahead ? -1 : c->input, POLLIN, 0};
}

/* A restored sandbox's standard input and output are others than before, and wait. */
static void never_wait(const struct client *c) {
    if (!c->lasting) return;
    set_nonblocking(c->input);
    set_nonblocking(c->output);
}

/* Writes what is taken at once; returns how many bytes, or -1 if nobody can read them any more. */
static ssize_t write_now(int fd, const char *data, size_t length) {
    size_t done = 0;
    while (done < length) {
        ssize_t n = write(fd, data + done, length - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) return -1;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static void say(int i, const void *data, size_t length) {
    struct client *c = &guest.clients[i];
    if (c->input < 0) return;
    ssize_t done = c->answers.length ? 0 : write_now(c->output, data, length);
    if (done < 0) drop_client(i);
    else if ((size_t)done < length) append(&c->answers, (const char *)data + done, length - (size_t)done);
}

void answer(int client, char type, const void *data, size_t length) {
    if (client < 0) return;
    char head[5];
    uint32_t size = (uint32_t)length + 1;
    memcpy(head, &size, 4);
    head[4] = type;
    never_wait(&guest.clients[client]);
    say(client, head, 5);
    say(client, data, length);
}

void answer_text(int client, char type, const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    answer(client, type, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

/* Writes on what was kept. */
static void answer_on(int i) {
    struct client *c = &guest.clients[i];
    ssize_t n = write_now(c->output, c->answers.data + c->taken, c->answers.length - c->taken);
    if (n < 0) {
        drop_client(i);
        return;
    }
    c->taken += (size_t)n;
    if (c->taken < c->answers.length) return;
    release(&c->answers);
    c->taken = 0;
}

/* Reads what there is, but not for as long as a client sends. */
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

/* Deals with the frames that are whole, up to one whose answer has to wait. */
static void handle_frames(int i) {
    struct client *c = &guest.clients[i];
    struct buffer *b = &c->requests;
    size_t at = 0;
    uint32_t size;
    while (c->input >= 0 && !c->answers.length && b->length - at >= 4) {
        memcpy(&size, b->data + at, 4);
        if (size > MAX_REQUEST) {
            answer_text(i, 'E', "a request of %u bytes; the most is %u", size, (unsigned)MAX_REQUEST);
            release(b);
            if (!c->lasting) drop_client(i);
            return;
        }
        if (b->length - at - 4 < size) break;
        handle_request(i, b->data + at + 4, size);
        at += 4 + (size_t)size;
    }
    if (c->input < 0) return;
    if (at == b->length) release(b);
    else if (at) {
        memmove(b->data, b->data + at, b->length - at);
        b->length -= at;
    }
}

/* Something awaited of a client has come. */
void serve_client(int i) {
    struct client *c = &guest.clients[i];
    never_wait(c);
    if (c->answers.length) answer_on(i);
    else read_client(i);
    if (c->input >= 0 && !c->answers.length && !c->attached) handle_frames(i);
    if (c->ended && !c->answers.length) release(&c->requests); /* the rest of a frame that is not whole will not come */
}

/* A bridge from our standard input and output to PID 1, until either side ends: a client's way in from outside. */
int bridge(void) {
    static struct {
        int from, to;
        size_t at, length;
        char data[65536];
    } ways[2];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&control, sizeof control)) die(CONTROL_PATH);
    ways[0].from = 0, ways[0].to = fd;
    ways[1].from = fd, ways[1].to = 1;
    for (int i = 0; i < 2; i++) set_nonblocking(ways[i].to);
    for (;;) {
        struct pollfd p[2];
        for (int i = 0; i < 2; i++) {
            bool full = ways[i].length > 0;
            p[i] = (struct pollfd){full ? ways[i].to : ways[i].from, full ? POLLOUT : POLLIN, 0};
        }
        if (poll(p, 2, -1) < 0) return 1;
        for (int i = 0; i < 2; i++) {
            if (!p[i].revents) continue;
            if (!ways[i].length) {
                ssize_t n = read(ways[i].from, ways[i].data, sizeof ways[i].data);
                if (n < 0 && errno == EAGAIN) continue;
                if (n <= 0) return 0;
                ways[i].at = 0;
                ways[i].length = (size_t)n;
            }
            ssize_t n = write_now(ways[i].to, ways[i].data + ways[i].at, ways[i].length);
            if (n < 0) return 0;
            ways[i].at += (size_t)n;
            ways[i].length -= (size_t)n;
        }
    }
}
