#include "connections.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest.h"
#include "home.h"

static ino_t control_inode; /* of our socket at CONTROL_PATH */

/* Listens at CONTROL_PATH, and no longer at the old socket; returns false, with errno, on failure. */
bool listen_here(void) {
    struct stat st;
    struct sockaddr_un control = {.sun_family = AF_UNIX, .sun_path = CONTROL_PATH};
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

/* Returns false if no connection is waiting. */
bool accept_client(void) {
    int fd = accept4(guest.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return false;
    /* The client found us by this file, which in a fork is another one. If the disk is full, no new one can be made. */
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

/* Makes sure that clients find us: commands may have removed the socket, or replaced it. */
void keep_listening(void) {
    struct stat st;
    if (lstat(CONTROL_PATH, &st) == 0 && st.st_ino == control_inode && S_ISSOCK(st.st_mode)) return;
    while (accept_client()) continue; /* those that found us before */
    listen_here();
}

/* Ends a connection; the lasting one only loses its unsent answers. */
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

/* A restored sandbox has another standard input and output, which may be blocking. */
void never_wait(const struct client *c) {
    if (!c->lasting) return;
    set_nonblocking(c->input);
    set_nonblocking(c->output);
}

static void say(int i, const void *data, size_t length) {
    struct client *c = &guest.clients[i];
    if (c->input < 0) return;
    ssize_t done = c->answers.length ? 0 : write_now(c->output, data, length);
    if (done < 0) drop_client(i);
    else if ((size_t)done < length) append(&c->answers, (const char *)data + done, length - (size_t)done);
}

void answer(int client, enum answer_type type, const void *data, size_t length) {
    if (client < 0) return;
    char head[LENGTH_BYTES + 1];
    uint32_t size = (uint32_t)length + 1;
    memcpy(head, &size, LENGTH_BYTES);
    head[LENGTH_BYTES] = (char)type;
    never_wait(&guest.clients[client]);
    say(client, head, sizeof head);
    say(client, data, length);
}

void answer_text(int client, enum answer_type type, const char *format, ...) {
    char text[MAX_ANSWER_TEXT];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    answer(client, type, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

/* Sends more of the unsent answers. */
void answer_on(int i) {
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
