/* Several commands in parallel, or one with separate standard error. It runs as one program apart from the shell, so
 * that PID 1 has one current action, with one timeout for all of them.
 *
 *   together    stdin: `LIMIT\0`, then for each command `CWD\0APART\0COMMAND\0INPUT\0COUNT\0` and COUNT times
 *               `NAME\0VALUE\0`. CWD: empty for this program's own. APART: 1 to separate standard error from the
 *               output. INPUT: what it reads; empty for /dev/null.
 *               stdout: frames `INDEX STREAM LENGTH\n` and so many bytes, of stream 1 or 2; and for each command, when it
 *               has ended, `INDEX 0 STATUS DURATION OUTPUT ERRORS\n`: microseconds, and total bytes of both streams
 *
 * Of each stream the first and the last half of LIMIT are kept. The first half is printed at once, so that it is not
 * lost if PID 1 kills all of this at its timeout. If jobs still have a stream open when their command has ended, a
 * separate process goes on reading it as long as they do.
 */
#include "together.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture.h"
#include "child.h"

enum { MAX_COMMANDS = 256, FIELDS = 5, CHUNK = 65536 };

struct stream {
    int fd; /* -1: it has ended, or is not separate */
    struct capture kept;
    size_t told; /* printed bytes of its first half */
};

struct command {
    const char *cwd, *apart, *command, *input;
    const char **environment; /* names and values */
    int variables;
    pid_t pid; /* 0 once it has ended */
    int64_t began;
    struct stream streams[2];
};

static struct command commands[MAX_COMMANDS];
static int count;

static void on_child(int signal) { (void)signal; }

static const char *next_text(const struct buffer *b, size_t *at) {
    const char *text = b->data + *at, *end = *at < b->length ? memchr(text, 0, b->length - *at) : NULL;
    if (!end) return NULL;
    *at = (size_t)(end - b->data) + 1;
    return text;
}

/* Returns false if there is no valid command. */
static bool read_command(const struct buffer *b, size_t *at, struct command *c) {
    const char *fields[FIELDS];
    for (int i = 0; i < FIELDS; i++)
        if (!(fields[i] = next_text(b, at))) return false;
    c->cwd = fields[0], c->apart = fields[1], c->command = fields[2], c->input = fields[3];
    c->variables = atoi(fields[4]);
    if (c->variables < 0 || c->variables > 4096) return false;
    c->environment = calloc(2 * (size_t)c->variables + 1, sizeof *c->environment);
    if (!c->environment) die("memory");
    for (int i = 0; i < 2 * c->variables; i++)
        if (!(c->environment[i] = next_text(b, at))) return false;
    return true;
}

static int open_input(const char *text) {
    if (!*text) return open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fd = memfd_create("input", MFD_CLOEXEC);
    if (fd < 0 || !write_all(fd, text, strlen(text)) || lseek(fd, 0, SEEK_SET)) die("input");
    return fd;
}

_Noreturn static void become_command(const struct command *c, int output, int errors, const sigset_t *mask) {
    setsid();
    int input = open_input(c->input);
    use_fd(output, 1);
    use_fd(errors, 2);
    if (input < 0) close(0);
    else use_fd(input, 0);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    for (int i = 0; i < c->variables; i++) setenv(c->environment[2 * i], c->environment[2 * i + 1], 1);
    if (*c->cwd && chdir(c->cwd)) {
        dprintf(2, "bash: cd: %s: %s\n", c->cwd, error_text(errno));
        _exit(1);
    }
    execl("/bin/bash", "/bin/bash", "-c", c->command, (char *)NULL);
    dprintf(2, "/bin/bash: %s\n", error_text(errno));
    _exit(127);
}

static void start(struct command *c, size_t limit, const sigset_t *mask) {
    int pipes[2][2] = {{-1, -1}, {-1, -1}};
    bool apart = *c->apart == '1';
    for (int i = 0; i <= apart; i++)
        if (pipe2(pipes[i], O_CLOEXEC)) die("pipe");
    c->began = now_us();
    c->pid = fork();
    if (c->pid < 0) die("fork");
    if (c->pid == 0) become_command(c, pipes[0][1], pipes[apart][1], mask);
    for (int i = 0; i < 2; i++) {
        if (pipes[i][1] >= 0) close(pipes[i][1]);
        if (pipes[i][0] >= 0) set_nonblocking(pipes[i][0]);
        c->streams[i].fd = pipes[i][0];
        capture_start(&c->streams[i].kept, limit);
    }
}

static void tell(int index, int stream, const char *data, size_t length) {
    char head[64];
    int n = snprintf(head, sizeof head, "%d %d %zu\n", index, stream + 1, length);
    if (length && (!write_all(1, head, (size_t)n) || !write_all(1, data, length))) _exit(1);
}

/* Reads what is available, at most 1 MiB per turn; closes a stream at its end. */
static void read_stream(int index, int number) {
    struct stream *s = &commands[index].streams[number];
    static char chunk[CHUNK];
    ssize_t n = 1;
    for (int turn = 0; turn < 16 && s->fd >= 0 && (n = read(s->fd, chunk, sizeof chunk)) > 0; turn++) {
        capture_add(&s->kept, chunk, (size_t)n);
        tell(index, number, s->kept.head.data + s->told, s->kept.head.length - s->told);
        s->told = s->kept.head.length;
    }
    if (s->fd < 0 || n) return;
    close(s->fd);
    s->fd = -1;
}

static void tell_end(int index, int status) {
    struct command *c = &commands[index];
    for (int i = 0; i < 2; i++) {
        struct capture *k = &c->streams[i].kept;
        read_stream(index, i);
        if (!k->tail.length) continue;
        size_t at = k->tail.length == k->limit - k->limit / 2 ? k->tail_at : 0;
        tell(index, i, k->tail.data + at, k->tail.length - at);
        tell(index, i, k->tail.data, at);
    }
    char line[128];
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    int n = snprintf(line, sizeof line, "%d 0 %d %lld %llu %llu\n", index, code, (long long)(now_us() - c->began),
                     (unsigned long long)c->streams[0].kept.total, (unsigned long long)c->streams[1].kept.total);
    if (!write_all(1, line, (size_t)n)) _exit(1);
}

/* Returns how many descriptors to poll, and whose they are. */
static int awaited(struct pollfd *polled, int *whose) {
    int n = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 2; k++)
            if (commands[i].streams[k].fd >= 0) {
                polled[n] = (struct pollfd){commands[i].streams[k].fd, POLLIN, 0};
                whose[n++] = 2 * i + k;
            }
    return n;
}

/* Goes on reading what jobs have open, until they close it. */
static void leave_to_jobs(void) {
    static struct pollfd polled[2 * MAX_COMMANDS];
    static int whose[2 * MAX_COMMANDS];
    static char chunk[CHUNK];
    int n = awaited(polled, whose);
    if (!n || fork()) return;
    setsid();
    for (int fd = 0; fd < 3; fd++) close(fd);
    while ((n = awaited(polled, whose)) && poll(polled, (nfds_t)n, -1) >= 0)
        for (int i = 0; i < n; i++) {
            int *fd = &commands[whose[i] / 2].streams[whose[i] % 2].fd;
            if (polled[i].revents && read(*fd, chunk, sizeof chunk) == 0) close(*fd), *fd = -1;
        }
    _exit(0);
}

int together(void) {
    struct buffer b = {0};
    size_t at = 0;
    if (!read_all(0, &b)) return errno;
    const char *limit = next_text(&b, &at);
    if (!limit) return EINVAL;
    while (at < b.length)
        if (count == MAX_COMMANDS || !read_command(&b, &at, &commands[count++])) return EINVAL;
    struct sigaction wake_up = {.sa_handler = on_child};
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    sigaction(SIGCHLD, &wake_up, NULL);
    for (int i = 0; i < count; i++) start(&commands[i], strtoull(limit, NULL, 10), &before);
    static struct pollfd polled[2 * MAX_COMMANDS];
    static int whose[2 * MAX_COMMANDS];
    for (int left = count; left;) {
        int n = awaited(polled, whose);
        if (ppoll(polled, (nfds_t)n, NULL, &before) > 0)
            for (int i = 0; i < n; i++)
                if (polled[i].revents) read_stream(whose[i] / 2, whose[i] % 2);
        int status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
            for (int i = 0; i < count; i++)
                if (commands[i].pid == pid) {
                    commands[i].pid = 0;
                    tell_end(i, status);
                    left--;
                }
    }
    leave_to_jobs();
    return 0;
}
