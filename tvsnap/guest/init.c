/* PID 1 of a sandbox: reaps, holds the shell's terminal, and answers requests on a Unix socket.
 *
 * Static, without dependencies, and every descriptor it holds ends inside the sandbox, so a checkpoint
 * has no outside ends. The protocol is described in protocol.py, its only client.
 *
 *   tvsnap-init serve COLUMNS ROWS USER CWD   PID 1; its environment becomes the shell's
 *   tvsnap-init get PATH LIMIT                file to stdout; exit status is the errno met, 0 for none
 *   tvsnap-init put PATH                      stdin to file, making parent directories; likewise
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define HOME_DIR "/run/tvsnap"
#define CONTROL_PATH HOME_DIR "/control"
#define OUTPUT_PATH HOME_DIR "/out"
#define SELF_PATH HOME_DIR "/init"
#define RC_PATH HOME_DIR "/rc"

#if defined __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "the system call filter does not know this machine"
#endif

enum { SHELL_WAKE = 60, SHELL_REPORT = 61, SHELL_COMMAND = 62 };
enum { MAX_CLIENTS = 8, MAX_DRAINS = 64, TERMINAL_KEEP = 256 * 1024, INTERRUPT_GRACE_MS = 150, SHELL_GRACE_MS = 1500 };
enum { SETTLE_US = 3000 };

/* ---- small things ------------------------------------------------------------------------------------- */

struct buffer {
    char *data;
    size_t length, room;
};

static void die(const char *what) {
    dprintf(2, "tvsnap-init: %s: %s\n", what, strerror(errno));
    _exit(125);
}

/* Large buffers come from mmap and go back at once: what is kept is in every snapshot. */
static void reserve(struct buffer *b, size_t more) {
    if (b->length + more <= b->room) return;
    size_t room = b->room ? b->room : 4096;
    while (room < b->length + more) room *= 2;
    void *data = b->data ? mremap(b->data, b->room, room, MREMAP_MAYMOVE)
                         : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) die("memory");
    b->data = data;
    b->room = room;
}

static void append(struct buffer *b, const void *data, size_t length) {
    reserve(b, length);
    memcpy(b->data + b->length, data, length);
    b->length += length;
}

static void release(struct buffer *b) {
    if (b->data) munmap(b->data, b->room);
    memset(b, 0, sizeof *b);
}

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

static bool write_all(int fd, const void *data, size_t length) {
    const char *at = data;
    while (length) {
        ssize_t n = write(fd, at, length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            if (poll(&p, 1, 10000) <= 0) return false;
            continue;
        }
        if (n <= 0) return false;
        at += n;
        length -= (size_t)n;
    }
    return true;
}

/* Reads a small file of /proc; returns its length, or -1. */
static ssize_t read_proc(pid_t pid, const char *name, char *out, size_t room) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, out, room - 1);
    close(fd);
    if (n >= 0) out[n] = 0;
    return n;
}

/* ---- output of one action: the first and the last half of the limit ------------------------------------ */

struct capture {
    struct buffer head, tail;
    size_t limit, tail_at;
    uint64_t total;
};

static void capture_start(struct capture *c, size_t limit) {
    release(&c->head);
    release(&c->tail);
    c->limit = limit;
    c->tail_at = 0;
    c->total = 0;
}

static void capture_add(struct capture *c, const char *data, size_t length) {
    c->total += length;
    size_t half = c->limit / 2;
    if (c->head.length < half) {
        size_t n = half - c->head.length < length ? half - c->head.length : length;
        append(&c->head, data, n);
        data += n;
        length -= n;
    }
    size_t rest = c->limit - half;
    if (length > rest) {
        data += length - rest;
        length = rest;
    }
    while (length) { /* a ring of `rest` bytes */
        if (c->tail.length < rest && c->tail_at == c->tail.length) {
            size_t n = rest - c->tail.length < length ? rest - c->tail.length : length;
            append(&c->tail, data, n);
            c->tail_at = c->tail.length % rest;
            data += n;
            length -= n;
        } else {
            size_t n = rest - c->tail_at < length ? rest - c->tail_at : length;
            memcpy(c->tail.data + c->tail_at, data, n);
            c->tail_at = (c->tail_at + n) % rest;
            data += n;
            length -= n;
        }
    }
}

/* ---- users: the image's passwd and group, read by hand since a static program has no NSS ---------------- */

struct user {
    uid_t uid;
    gid_t gid;
    gid_t groups[64];
    int group_count;
    char name[64], home[256];
};

static bool find_user(const char *wanted, struct user *u) {
    char line[1024];
    unsigned long number = strtoul(wanted, NULL, 10);
    bool numeric = wanted[0] >= '0' && wanted[0] <= '9';
    bool found = false;
    memset(u, 0, sizeof *u);
    FILE *f = fopen("/etc/passwd", "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *field[7], *rest = line;
        int n = 0;
        line[strcspn(line, "\n")] = 0;
        while (n < 7 && (field[n] = strsep(&rest, ":"))) n++;
        if (n < 6) continue;
        if (numeric ? strtoul(field[2], NULL, 10) != number : strcmp(field[0], wanted) != 0) continue;
        u->uid = (uid_t)strtoul(field[2], NULL, 10);
        u->gid = (gid_t)strtoul(field[3], NULL, 10);
        snprintf(u->name, sizeof u->name, "%s", field[0]);
        snprintf(u->home, sizeof u->home, "%s", field[5]);
        found = true;
    }
    if (f) fclose(f);
    if (!found && numeric) {
        u->uid = u->gid = (uid_t)number;
        snprintf(u->name, sizeof u->name, "%s", wanted);
        snprintf(u->home, sizeof u->home, "/");
        found = true;
    }
    if (!found && strcmp(wanted, "root") == 0) {
        snprintf(u->name, sizeof u->name, "root");
        snprintf(u->home, sizeof u->home, "/root");
        found = true;
    }
    if (!found) return false;
    u->groups[u->group_count++] = u->gid;
    f = fopen("/etc/group", "re");
    while (f && fgets(line, sizeof line, f) && u->group_count < 64) {
        char *rest = line;
        line[strcspn(line, "\n")] = 0;
        if (!strsep(&rest, ":") || !strsep(&rest, ":")) continue;
        char *gid = strsep(&rest, ":"), *member;
        while (gid && rest && (member = strsep(&rest, ",")))
            if (strcmp(member, u->name) == 0) {
                u->groups[u->group_count++] = (gid_t)strtoul(gid, NULL, 10);
                break;
            }
    }
    if (f) fclose(f);
    return true;
}

static bool become(const struct user *u) {
    return setgroups((size_t)u->group_count, u->groups) == 0 && setresgid(u->gid, u->gid, u->gid) == 0 &&
           setresuid(u->uid, u->uid, u->uid) == 0;
}

/* ---- what this process is ------------------------------------------------------------------------------ */

enum shell_mode {
    SHELL_STARTING, /* rc is being read */
    SHELL_IDLE,     /* waits for a command from us */
    SHELL_RUNNING,  /* executes one */
    SHELL_PROMPT,   /* was handed to the terminal: shows its prompt, or runs what was typed there */
};

enum action { NOTHING, RUN, EXEC, KEYS };

static struct {
    int listener, master, wake, report, command; /* our ends */
    int out_reader;                              /* output of the persistent shell's present call */
    bool out_shared;                             /* a background job still holds that output */
    struct user user;
    char cwd[PATH_MAX];
    unsigned short columns, rows;
    char **environment;
    pid_t shell;
    unsigned sequence; /* of the command that the shell was given last: its reports name it */
    enum shell_mode mode;
    int64_t shell_started;
    struct buffer dump, incoming; /* the shell's state after its last call; what it is reporting now */
    bool dump_ready;
    struct buffer terminal;
    uint64_t terminal_count; /* bytes ever sent to it */
    int clients[MAX_CLIENTS];
    bool attached[MAX_CLIENTS];
    struct buffer requests[MAX_CLIENTS];
    int drains[MAX_DRAINS];
    int drain_count;
} S;

/* The action under way: one at a time. */
static struct {
    enum action kind;
    int client;
    pid_t child;   /* EXEC */
    int output;    /* where its output comes from */
    int input;     /* EXEC: the child's stdin */
    struct buffer input_data;
    size_t input_at;
    struct capture capture;
    int64_t started, deadline, half, quiet_until, interrupted;
    bool fed;     /* RUN: the shell has been given the command */
    int attempts; /* RUN: how often */
    bool timed_out, sampled, blocked;
    uint64_t sample;
    int exit_code;
    bool shell_lost;
    bool reported;   /* RUN: the shell has said that it is done with it */
    int64_t settled; /* RUN, timed out: when the shell has taken its last SIGINT */
    pid_t *before; /* processes alive at its start: not ours to kill */
    size_t before_count;
    struct buffer pending; /* RUN that waits for the shell: the command */
    size_t limit;
} A = {.client = -1, .output = -1, .input = -1};

/* ---- processes ------------------------------------------------------------------------------------------ */

static size_t list_processes(pid_t **out) {
    static pid_t *pids;
    static size_t room;
    size_t n = 0;
    DIR *d = opendir("/proc");
    struct dirent *e;
    while (d && (e = readdir(d))) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9') continue;
        if (n == room) {
            room = room ? room * 2 : 64;
            pids = realloc(pids, room * sizeof *pids);
            if (!pids) die("memory");
        }
        pids[n++] = (pid_t)atoi(e->d_name);
    }
    if (d) closedir(d);
    *out = pids;
    return n;
}

static void remember_processes(void) {
    pid_t *pids;
    size_t n = list_processes(&pids);
    A.before = realloc(A.before, n * sizeof *pids + 1);
    if (!A.before) die("memory");
    memcpy(A.before, pids, n * sizeof *pids);
    A.before_count = n;
}

static bool is_new(pid_t pid) {
    if (pid == 1 || pid == S.shell) return false;
    for (size_t i = 0; i < A.before_count; i++)
        if (A.before[i] == pid) return false;
    return true;
}

static size_t signal_new(int signal) {
    pid_t *pids;
    size_t n = list_processes(&pids), hit = 0;
    for (size_t i = 0; i < n; i++)
        if (is_new(pids[i])) {
            char stat[512];
            ssize_t got = read_proc(pids[i], "stat", stat, sizeof stat);
            char *end = got > 0 ? strrchr(stat, ')') : NULL;
            if (!end || end[2] == 'Z') continue;
            if (kill(pids[i], signal) == 0) hit++;
        }
    return hit;
}

/* Ends every process that the action started. They are stopped first: a fork bomb cannot outrun that. */
static void kill_new(void) {
    size_t last = 0;
    for (int round = 0; round < 20; round++) {
        size_t n = signal_new(SIGSTOP);
        if (n == last) break;
        last = n;
    }
    for (int round = 0; round < 200 && signal_new(SIGKILL); round++) usleep(500); /* until they are gone */
}

/* Nanoseconds of processor time that the action's processes used so far, all of them asleep; else 0. */
static uint64_t sleeping_time(void) {
    pid_t *pids;
    size_t n = list_processes(&pids);
    uint64_t sum = 1;
    for (size_t i = 0; i < n; i++) {
        if (pids[i] == 1 || (pids[i] != S.shell && !is_new(pids[i]))) continue;
        char text[512];
        if (read_proc(pids[i], "stat", text, sizeof text) <= 0) return 0;
        char *end = strrchr(text, ')');
        if (!end || (end[2] != 'S' && end[2] != 'T' && end[2] != 't')) return 0;
        if (read_proc(pids[i], "schedstat", text, sizeof text) <= 0) return 0;
        sum = sum * 31 + (uint64_t)pids[i] + strtoull(text, NULL, 10);
    }
    return sum;
}

/* ---- the persistent shell -------------------------------------------------------------------------------- */

static void use_fd(int fd, int wanted) {
    if (fd == wanted)
        fcntl(fd, F_SETFD, 0);
    else if (dup2(fd, wanted) < 0)
        die("dup2");
}

/* What a child must not inherit of PID 1. */
static void become_ordinary(void) {
    int oom = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (oom >= 0) {
        if (write(oom, "300", 3) != 3) die("oom_score_adj"); /* before PID 1, whatever its size */
        close(oom);
    }
    sigset_t none;
    sigemptyset(&none);
    for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void make_output_fifo(void) {
    mkdir("/run", 0755);
    mkdir(HOME_DIR, 0755);
    unlink(OUTPUT_PATH);
    if (mkfifo(OUTPUT_PATH, 0622) == 0 && chmod(OUTPUT_PATH, 0622) == 0)
        if (chown(OUTPUT_PATH, S.user.uid, S.user.gid)) return;
}

static void start_shell(void) {
    int wake[2], report[2];
    char name[64];
    int number = 0, unlock = 0;
    if (S.master >= 0) close(S.master);
    if (S.wake >= 0) close(S.wake);
    if (S.report >= 0) close(S.report);
    release(&S.incoming);
    S.dump_ready = false;
    S.master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (S.master < 0 || ioctl(S.master, TIOCGPTN, &number) || ioctl(S.master, TIOCSPTLCK, &unlock)) die("pty");
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    struct winsize size = {.ws_row = S.rows, .ws_col = S.columns};
    ioctl(S.master, TIOCSWINSZ, &size);
    set_nonblocking(S.master);
    if (pipe2(wake, O_CLOEXEC) || pipe2(report, O_CLOEXEC)) die("pipe");
    S.wake = wake[1];
    S.report = report[0];
    set_nonblocking(S.report);
    S.mode = SHELL_STARTING;
    S.shell_started = now_us();
    S.shell = fork();
    if (S.shell < 0) die("fork");
    if (S.shell) {
        close(wake[0]);
        close(report[1]);
        return;
    }
    setsid();
    int terminal = open(name, O_RDWR);
    if (terminal < 0) die(name);
    ioctl(terminal, TIOCSCTTY, 0);
    if (fchown(terminal, S.user.uid, S.user.gid)) { /* a terminal that is not owned still works */
    }
    use_fd(wake[0], SHELL_WAKE);
    use_fd(report[1], SHELL_REPORT);
    use_fd(S.command, SHELL_COMMAND);
    for (int i = 0; i < 3; i++) use_fd(terminal, i);
    if (terminal > 2) close(terminal);
    become_ordinary();
    environ = S.environment;
    setenv("HOME", S.user.home, 0);
    setenv("USER", S.user.name, 0);
    setenv("LOGNAME", S.user.name, 0);
    setenv("SHELL", "/bin/bash", 0);
    if (!become(&S.user)) die("user");
    if (chdir(S.cwd) && chdir("/")) die("chdir");
    execl("/bin/bash", "bash", "--noprofile", "--rcfile", RC_PATH, "-i", NULL);
    die("/bin/bash");
}

/* Gives the waiting shell a command, or hands it to the terminal. */
static void wake_shell(char what) {
    char line[32];
    int n = snprintf(line, sizeof line, "%c %u\n", what, S.sequence);
    write_all(S.wake, line, (size_t)n);
}

static void feed_command(void) {
    if (ftruncate(S.command, 0) || pwrite(S.command, A.pending.data ? A.pending.data : "", A.pending.length, 0) < 0)
        die("command");
    lseek(S.command, 0, SEEK_SET);
    S.sequence++;
    A.attempts++;
    if (S.out_reader < 0 || S.out_shared) {
        if (S.out_reader >= 0) {
            if (S.drain_count < MAX_DRAINS)
                S.drains[S.drain_count++] = S.out_reader;
            else
                close(S.out_reader);
        }
        make_output_fifo();
        S.out_reader = -1;
        S.out_shared = false;
    }
    struct stat st;
    if (stat(OUTPUT_PATH, &st) || !S_ISFIFO(st.st_mode)) make_output_fifo();
    if (S.out_reader >= 0) close(S.out_reader);
    S.out_reader = open(OUTPUT_PATH, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    A.output = S.out_reader;
    S.mode = SHELL_RUNNING;
    A.fed = true;
    S.dump_ready = false;
    wake_shell('c');
}

/* ---- answers ----------------------------------------------------------------------------------------------- */

static void drop_client(int i) {
    close(S.clients[i]);
    S.clients[i] = -1;
    S.attached[i] = false;
    release(&S.requests[i]);
    if (A.client == i) A.client = -1;
}

static void answer(int client, char type, const void *data, size_t length) {
    if (client < 0 || S.clients[client] < 0) return;
    char head[5];
    uint32_t size = (uint32_t)length + 1;
    memcpy(head, &size, 4);
    head[4] = type;
    if (!write_all(S.clients[client], head, 5) || !write_all(S.clients[client], data, length)) drop_client(client);
}

static void answer_text(int client, char type, const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    answer(client, type, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

static void forget_action(void) {
    capture_start(&A.capture, 0);
    release(&A.pending);
    release(&A.input_data);
    if (A.input >= 0) close(A.input);
    A.kind = NOTHING;
    A.client = A.output = A.input = -1;
    A.child = 0;
}

static bool drain_output(void) {
    char chunk[65536];
    ssize_t n = 1;
    int fd = A.output;
    while (fd >= 0 && (n = read(fd, chunk, sizeof chunk)) > 0) {
        capture_add(&A.capture, chunk, (size_t)n);
        if (now_us() > A.deadline) break; /* an endless writer must not keep us from its timeout */
    }
    return fd >= 0 && n == 0;
}

static void finish_action(void) {
    /* Whatever was written before the end is in the pipe by now; a pipe's worth more may come from jobs. */
    for (int i = 0; i < 4; i++) {
        char chunk[65536];
        ssize_t n = A.output >= 0 ? read(A.output, chunk, sizeof chunk) : 0;
        if (n <= 0) {
            if (A.kind == RUN && A.output >= 0) S.out_shared = n < 0;
            if (A.kind == EXEC && A.output >= 0) {
                if (n < 0 && S.drain_count < MAX_DRAINS)
                    S.drains[S.drain_count++] = A.output;
                else
                    close(A.output);
            }
            A.output = -1;
            break;
        }
        capture_add(&A.capture, chunk, (size_t)n);
    }
    if (A.output >= 0) { /* a job that never stops writing */
        if (A.kind == RUN) S.out_shared = true;
        else if (S.drain_count < MAX_DRAINS) S.drains[S.drain_count++] = A.output;
        else close(A.output);
    }
    struct capture *c = &A.capture;
    int64_t duration = now_us() - A.started;
    answer(A.client, 'O', c->head.data, c->head.length);
    if (c->tail.length) {
        bool full = c->tail.length == c->limit - c->limit / 2;
        size_t at = full ? c->tail_at : 0;
        answer(A.client, 'O', c->tail.data + at, c->tail.length - at);
        if (at) answer(A.client, 'O', c->tail.data, at);
    }
    answer_text(A.client, 'X', "%d %lld %llu %d %d %d", A.exit_code, (long long)duration, (unsigned long long)c->total,
                A.timed_out, A.blocked, A.shell_lost);
    forget_action();
}

/* ---- requests ---------------------------------------------------------------------------------------------- */

struct field {
    const char *data;
    size_t length;
};

static char *text_of(struct field f) {
    char *s = malloc(f.length + 1);
    if (!s) die("memory");
    memcpy(s, f.data, f.length);
    s[f.length] = 0;
    return s;
}

static int64_t number_of(struct field f) {
    char text[32];
    size_t n = f.length < 31 ? f.length : 31;
    memcpy(text, f.data, n);
    text[n] = 0;
    return strtoll(text, NULL, 10);
}

static void begin(enum action kind, int client, int64_t timeout_us, size_t limit) {
    A.kind = kind;
    A.client = client;
    A.fed = A.timed_out = A.blocked = A.sampled = A.reported = A.shell_lost = false;
    A.exit_code = -1;
    A.interrupted = 0;
    A.sample = 0;
    A.attempts = 0;
    A.settled = 0;
    A.started = now_us();
    A.deadline = A.started + timeout_us;
    A.half = A.started + timeout_us / 2;
    capture_start(&A.capture, limit);
}

static void foreground_name(char *out, size_t room) {
    pid_t group = 0;
    snprintf(out, room, "a program");
    if (ioctl(S.master, TIOCGPGRP, &group) || group <= 0) return;
    ssize_t n = read_proc(group, "cmdline", out, room);
    for (ssize_t i = 0; i + 1 < n; i++)
        if (!out[i]) out[i] = ' ';
}

static bool shell_has_terminal(void) {
    pid_t group = 0;
    return ioctl(S.master, TIOCGPGRP, &group) == 0 && group == S.shell;
}

static void start_run(int client, struct field *f) {
    if (S.mode == SHELL_PROMPT) {
        if (!shell_has_terminal()) {
            char name[256];
            foreground_name(name, sizeof name);
            answer_text(client, 'B', "%s", name);
            return;
        }
        write_all(S.master, "\x15\r", 2); /* clear what was typed; Enter brings the shell back to us */
    }
    begin(RUN, client, number_of(f[0]), (size_t)number_of(f[1]));
    append(&A.pending, f[2].data, f[2].length);
    remember_processes();
    if (S.mode == SHELL_IDLE) feed_command();
}

/* fields: timeout, limit, user, cwd ("" for the image's, "." for the shell's), stdin, argc, argv..., env... */
static void start_exec(int client, struct field *f, int count) {
    int out[2], in[2];
    int argc = (int)number_of(f[5]);
    if (argc < 1 || 6 + argc > count) {
        answer_text(client, 'E', "malformed request");
        return;
    }
    struct user user = S.user;
    char *wanted = text_of(f[2]);
    bool known = !*wanted || find_user(wanted, &user);
    free(wanted);
    if (!known) {
        answer_text(client, 'U', "no such user in the image");
        return;
    }
    if (pipe2(out, O_CLOEXEC) || pipe2(in, O_CLOEXEC)) die("pipe");
    begin(EXEC, client, number_of(f[0]), (size_t)number_of(f[1]));
    remember_processes();
    pid_t pid = fork();
    if (pid < 0) {
        close(out[0]), close(out[1]), close(in[0]), close(in[1]);
        answer_text(client, 'E', "fork: %s", strerror(errno));
        forget_action();
        return;
    }
    if (pid == 0) {
        setsid();
        char *cwd = text_of(f[3]), link[64];
        snprintf(link, sizeof link, "/proc/%d/cwd", S.shell);
        bool here = strcmp(cwd, ".") == 0;
        const char *where = !*cwd || (here && S.mode == SHELL_STARTING) ? S.cwd : here ? link : cwd;
        char **argv = calloc((size_t)argc + 1, sizeof *argv);
        for (int i = 0; i < argc; i++) argv[i] = text_of(f[6 + i]);
        environ = S.environment;
        setenv("HOME", user.home, 0);
        setenv("USER", user.name, 0);
        setenv("SHELL", "/bin/bash", 0);
        if (user.uid != S.user.uid) setenv("HOME", user.home, 1), setenv("USER", user.name, 1);
        for (int i = 6 + argc; i + 1 < count; i += 2) setenv(text_of(f[i]), text_of(f[i + 1]), 1);
        int no_input = f[4].length ? in[0] : open("/dev/null", O_RDONLY);
        use_fd(out[1], 1);
        dup2(1, 2);
        if (no_input < 0) close(0);
        else use_fd(no_input, 0);
        become_ordinary();
        if (!become(&user)) dprintf(2, "cannot become user %s: %s\n", user.name, strerror(errno)), _exit(126);
        if (chdir(where) && where != S.cwd) dprintf(2, "bash: cd: %s: %s\n", where, strerror(errno)), _exit(1);
        execvp(argv[0], argv);
        dprintf(2, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    close(out[1]);
    close(in[0]);
    set_nonblocking(out[0]);
    set_nonblocking(in[1]);
    A.child = pid;
    A.output = out[0];
    A.input = in[1];
    if (f[4].length) append(&A.input_data, f[4].data, f[4].length);
    A.input_at = 0;
}

static void feed_input(void) {
    while (A.input >= 0 && A.input_at < A.input_data.length) {
        ssize_t n = write(A.input, A.input_data.data + A.input_at, A.input_data.length - A.input_at);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) break;
        A.input_at += (size_t)n;
    }
    if (A.input >= 0) close(A.input);
    A.input = -1;
    release(&A.input_data);
}

static void to_prompt(void) {
    if (S.mode == SHELL_IDLE) {
        S.mode = SHELL_PROMPT;
        S.dump_ready = false;
        wake_shell('p');
    }
}

static void handle_request(int i, const char *body, size_t length) {
    struct field f[256];
    int count = 0;
    size_t at = 1;
    while (at + 4 <= length && count < 256) {
        uint32_t size;
        memcpy(&size, body + at, 4);
        at += 4;
        if (size > length - at) break;
        f[count++] = (struct field){body + at, size};
        at += size;
    }
    char op = length ? body[0] : 0;
    bool starts = op == 'r' || op == 'e' || op == 'k';
    if (starts && A.kind != NOTHING) {
        answer_text(i, 'E', "busy with another request");
        return;
    }
    if (op == 'r' && count == 3) {
        start_run(i, f);
    } else if (op == 'e' && count >= 7) {
        start_exec(i, f, count);
    } else if (op == 'k' && count == 3) {
        begin(KEYS, i, number_of(f[0]), 0);
        A.quiet_until = A.started + number_of(f[1]);
        append(&A.pending, f[2].data, f[2].length);
        to_prompt();
    } else if (op == 't') {
        char head[32];
        struct winsize size = {0};
        ioctl(S.master, TIOCGWINSZ, &size);
        int n = snprintf(head, sizeof head, "%d %d", size.ws_col, size.ws_row);
        answer(i, 'W', head, (size_t)n);
        answer(i, 'T', S.terminal.data, S.terminal.length);
    } else if (op == 's') {
        if (S.dump_ready) answer(i, 'D', S.dump.data, S.dump.length);
        else answer_text(i, S.mode == SHELL_RUNNING || S.mode == SHELL_STARTING ? 'L' : 'N', "");
    } else if (op == 'i') {
        answer_text(i, 'I', "%d %d %d %llu", S.shell, S.mode, A.kind, (unsigned long long)S.terminal_count);
    } else if (op == 'a' && count == 2) {
        struct winsize size = {.ws_col = (unsigned short)number_of(f[0]), .ws_row = (unsigned short)number_of(f[1])};
        if (size.ws_col && size.ws_row) ioctl(S.master, TIOCSWINSZ, &size);
        answer(i, 'A', "", 0);
        if (S.clients[i] >= 0) {
            S.attached[i] = true;
            set_nonblocking(S.clients[i]);
            if (S.mode == SHELL_PROMPT) write_all(S.master, "\f", 1); /* redraw */
            to_prompt();
        }
    } else if (op == 'q') {
        drop_client(i);
    } else {
        answer_text(i, 'E', "unknown request");
    }
}

static void read_client(int i) {
    char chunk[65536];
    for (;;) {
        ssize_t n = recv(S.clients[i], chunk, sizeof chunk, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n <= 0) {
            drop_client(i);
            return;
        }
        if (S.attached[i]) {
            if (!write_all(S.master, chunk, (size_t)n)) return;
            continue;
        }
        append(&S.requests[i], chunk, (size_t)n);
    }
    struct buffer *b = &S.requests[i];
    size_t at = 0;
    uint32_t size;
    while (S.clients[i] >= 0 && b->length - at >= 4 && (memcpy(&size, b->data + at, 4), b->length - at - 4 >= size)) {
        handle_request(i, b->data + at + 4, size);
        at += 4 + (size_t)size;
    }
    if (S.clients[i] < 0) return;
    if (at == b->length) release(b);
    else if (at) {
        memmove(b->data, b->data + at, b->length - at);
        b->length -= at;
    }
}

/* ---- events -------------------------------------------------------------------------------------------------- */

static bool attached(void) {
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (S.attached[i]) return true;
    return false;
}

/* The shell reports `S<status> <ran> <sequence>\n` the moment a command is done, then its state, ended by a NUL. */
static void read_report(void) {
    char chunk[65536];
    ssize_t n;
    while ((n = read(S.report, chunk, sizeof chunk)) > 0) append(&S.incoming, chunk, (size_t)n);
    struct buffer *b = &S.incoming;
    for (;;) {
        char *line = b->length && b->data[0] == 'S' ? memchr(b->data, '\n', b->length) : NULL;
        char *end;
        if (line && S.mode == SHELL_IDLE) S.mode = SHELL_STARTING; /* it was interrupted while it waited */
        int status, ran = 0;
        unsigned sequence = 0;
        bool reported = line && sscanf(b->data, "S%d %d %u\n", &status, &ran, &sequence) == 3;
        if (reported && A.kind == RUN && A.fed && !A.reported && sequence == S.sequence && (ran || A.timed_out)) {
            A.reported = true;
            A.exit_code = A.timed_out ? -1 : status;
            if (!A.timed_out) finish_action();
        }
        if (!line || !(end = memchr(line, 0, b->length - (size_t)(line - b->data)))) break;
        release(&S.dump);
        append(&S.dump, line + 1, (size_t)(end - line - 1));
        S.dump_ready = true;
        S.mode = SHELL_IDLE;
        size_t used = (size_t)(end - b->data) + 1;
        memmove(b->data, b->data + used, b->length - used);
        b->length -= used;
        if (!b->length) release(b);
        if (A.kind == RUN && A.timed_out) {
            A.settled = now_us() + SETTLE_US;
        } else if (A.kind == RUN && A.attempts < 3) { /* also when it was interrupted before it began */
            feed_command();
        } else if (A.kind == RUN) {
            answer_text(A.client, 'E', "the shell could not open its output");
            forget_action();
        }
        if (A.kind == KEYS || attached()) to_prompt();
    }
}

static void read_terminal(void) {
    char chunk[16384];
    ssize_t n;
    while ((n = read(S.master, chunk, sizeof chunk)) > 0) {
        append(&S.terminal, chunk, (size_t)n);
        S.terminal_count += (uint64_t)n;
        if (S.terminal.length > 2 * TERMINAL_KEEP) {
            memmove(S.terminal.data, S.terminal.data + S.terminal.length - TERMINAL_KEEP, TERMINAL_KEEP);
            S.terminal.length = TERMINAL_KEEP;
        }
        for (int i = 0; i < MAX_CLIENTS; i++)
            if (S.attached[i] && send(S.clients[i], chunk, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
                drop_client(i);
        if (A.kind == KEYS && !A.pending.length) A.quiet_until = now_us() + 100000;
    }
}

static void shell_ended(int status) {
    bool was_running = S.mode == SHELL_RUNNING || S.mode == SHELL_STARTING;
    read_report();
    S.shell = 0;
    if (A.kind == RUN && was_running) {
        A.exit_code = A.timed_out ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        A.shell_lost = true;
        if (A.timed_out) kill_new();
        if (S.mode == SHELL_STARTING && now_us() - S.shell_started < 1000000 && A.exit_code >= 125) {
            answer_text(A.client, 'E', "the image has no usable /bin/bash");
            forget_action();
        } else {
            finish_action();
        }
    }
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (S.attached[i]) drop_client(i);
    bool hasty = S.mode == SHELL_STARTING && now_us() - S.shell_started < 1000000;
    if (hasty) usleep(100000); /* an image whose bash cannot start must not make us spin */
    start_shell();
}

static void reap(void) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == S.shell) shell_ended(status);
        else if (A.kind == EXEC && pid == A.child) {
            A.exit_code = A.timed_out ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            drain_output();
            finish_action();
        }
    }
}

static void check_time(void) {
    int64_t now = now_us();
    if (A.kind == NOTHING) return;
    if (A.kind == KEYS) {
        if (A.pending.length && S.mode == SHELL_PROMPT && now > A.started + 3000) {
            /* the prompt, if there is to be one, is out or about to be: readline takes early keys as well */
            write_all(S.master, A.pending.data, A.pending.length);
            release(&A.pending);
            A.quiet_until = now + 100000;
        }
        if (now >= A.deadline || (!A.pending.length && now >= A.quiet_until)) finish_action();
        return;
    }
    if (!A.sampled && now >= A.half) {
        A.sampled = true;
        A.sample = sleeping_time();
    }
    if (now < A.deadline) return;
    if (!A.timed_out) {
        A.blocked = A.sample && sleeping_time() == A.sample;
        A.timed_out = true;
        A.interrupted = now;
        if (A.kind == RUN) { /* first as Ctrl-C would, so that the shell abandons the whole command */
            signal_new(SIGINT);
            kill(S.shell, SIGINT);
        } else {
            kill_new();
        }
        return;
    }
    if (A.settled) {
        if (now < A.settled) return;
        kill_new(); /* those that ignore SIGINT */
        finish_action();
        return;
    }
    if (now - A.interrupted > INTERRUPT_GRACE_MS * 1000 && !A.reported) {
        kill_new();
        if (A.kind == RUN && S.shell) kill(S.shell, now - A.interrupted > SHELL_GRACE_MS * 1000 ? SIGKILL : SIGINT);
    }
}

static int next_wakeup_ms(void) {
    int64_t now = now_us(), at;
    if (A.kind == NOTHING) return -1;
    if (A.kind == KEYS) at = A.pending.length ? now + 1000 : A.quiet_until < A.deadline ? A.quiet_until : A.deadline;
    else if (A.timed_out) at = A.settled ? A.settled : now + 10000;
    else if (!A.sampled) at = A.half < A.deadline ? A.half : A.deadline;
    else at = A.deadline;
    return at <= now ? 0 : (int)((at - now + 999) / 1000);
}

static void accept_client(void) {
    int fd = accept4(S.listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (S.clients[i] < 0) {
            S.clients[i] = fd;
            return;
        }
    close(fd);
}

static void on_child(int signal) { (void)signal; } /* its arrival ends ppoll, that is all */

static void listen_here(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = CONTROL_PATH};
    mkdir("/run", 0755);
    mkdir(HOME_DIR, 0755);
    unlink(CONTROL_PATH);
    S.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (S.listener < 0 || bind(S.listener, (struct sockaddr *)&address, sizeof address) || chmod(CONTROL_PATH, 0600) ||
        listen(S.listener, 16))
        die(CONTROL_PATH);
}

/* What a container's root keeps: the default set of Docker. The rest is gone for good. */
static void drop_capabilities(void) {
    static const int keep[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE,     CAP_FOWNER,  CAP_FSETID,     CAP_KILL,
                               CAP_SETGID, CAP_SETUID,           CAP_SETPCAP, CAP_SYS_CHROOT, CAP_MKNOD,
                               CAP_NET_RAW, CAP_NET_BIND_SERVICE, CAP_AUDIT_WRITE, CAP_SETFCAP};
    uint64_t mask = 0;
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) mask |= 1ULL << keep[i];
    for (int c = 0; c <= CAP_LAST_CAP; c++)
        if (!(mask >> c & 1)) prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = (uint32_t)mask, .permitted = (uint32_t)mask},
        {.effective = (uint32_t)(mask >> 32), .permitted = (uint32_t)(mask >> 32)},
    };
    if (syscall(SYS_capset, &head, data)) die("capset");
}

/* What no command of a sandbox needs, and where kernels break: user namespaces of its own (which could not be
 * checkpointed either), keyrings, BPF, and the like. clone3 hides its flags behind a pointer: programs fall back. */
static void filter_system_calls(void) {
    static const int denied[] = {
        SYS_keyctl, SYS_add_key, SYS_request_key, SYS_bpf, SYS_userfaultfd, SYS_perf_event_open, SYS_open_by_handle_at,
        SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_io_uring_setup,
        SYS_io_uring_enter, SYS_io_uring_register, SYS_setns, SYS_fsopen, SYS_open_tree, SYS_move_mount,
    };
    enum { DENIED = sizeof denied / sizeof *denied };
    struct sock_filter code[16 + 2 * DENIED];
    unsigned short n = 0;
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
    code[n++] = (struct sock_filter)LOAD(arch);
    code[n++] = (struct sock_filter)EQUAL(NATIVE_ARCH, 1, 0);
    code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | ENOSYS); /* no 32-bit calls */
    code[n++] = (struct sock_filter)LOAD(nr);
    code[n++] = (struct sock_filter)EQUAL(SYS_clone3, 0, 1);
    code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | ENOSYS);
    for (int i = 0; i < DENIED; i++) {
        code[n++] = (struct sock_filter)EQUAL((unsigned)denied[i], 0, 1);
        code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | EPERM);
    }
    code[n++] = (struct sock_filter)EQUAL(SYS_clone, 1, 0);
    code[n++] = (struct sock_filter)EQUAL(SYS_unshare, 0, 3);
    code[n++] = (struct sock_filter)LOAD(args[0]);
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1);
    code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | EPERM);
    code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = n, .filter = code};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) die("seccomp");
}

_Noreturn static void serve(char **argv) {
    S.columns = (unsigned short)atoi(argv[0]);
    S.rows = (unsigned short)atoi(argv[1]);
    S.listener = S.master = S.wake = S.report = S.out_reader = -1;
    S.environment = environ;
    for (int i = 0; i < MAX_CLIENTS; i++) S.clients[i] = -1;
    if (!find_user(argv[2], &S.user)) {
        errno = ENOENT;
        die(argv[2]);
    }
    snprintf(S.cwd, sizeof S.cwd, "%s", argv[3]);
    umask(022);
    filter_system_calls();
    drop_capabilities();
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigset_t blocked, open_mask;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &open_mask);
    S.command = memfd_create("command", MFD_CLOEXEC);
    if (S.command < 0) die("memfd");
    listen_here();
    make_output_fifo();
    start_shell();
    for (;;) {
        struct pollfd p[8 + MAX_CLIENTS + MAX_DRAINS];
        int n = 0, of_client[MAX_CLIENTS], drains_at, drains = S.drain_count;
        p[n++] = (struct pollfd){.fd = S.listener, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = S.master, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = S.report, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = A.output, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = A.input, .events = POLLOUT};
        /* a job's output after its call: read, so that the job is not held up, and dropped */
        p[n++] = (struct pollfd){.fd = A.kind == RUN || !S.out_shared ? -1 : S.out_reader, .events = POLLIN};
        for (int i = 0; i < MAX_CLIENTS; i++) {
            of_client[i] = n;
            p[n++] = (struct pollfd){.fd = S.clients[i], .events = POLLIN};
        }
        drains_at = n;
        for (int i = 0; i < drains; i++) p[n++] = (struct pollfd){.fd = S.drains[i], .events = POLLIN};
        int wait = next_wakeup_ms();
        struct timespec t = {.tv_sec = wait / 1000, .tv_nsec = wait % 1000 * 1000000L};
        int got = ppoll(p, (nfds_t)n, wait < 0 ? NULL : &t, &open_mask);
        if (got > 0) {
            if (p[2].revents) read_report();
            if (p[1].revents & POLLIN) read_terminal();
            else if (p[1].revents) usleep(1000); /* no program holds the terminal for a moment */
            if (p[3].revents && p[3].fd == A.output && drain_output() && A.kind == RUN) {
                /* no writer left yet or any more: the shell's report says which; do not spin meanwhile */
                struct pollfd quiet = {.fd = S.report, .events = POLLIN};
                poll(&quiet, 1, 1);
            } else if (p[3].revents & POLLHUP && A.kind == EXEC && p[3].fd == A.output) {
                if (drain_output()) close(A.output), A.output = -1;
            }
            if (p[4].revents && p[4].fd == A.input) feed_input();
            if (p[5].revents) {
                char chunk[65536];
                if (read(S.out_reader, chunk, sizeof chunk) == 0) {
                    close(S.out_reader);
                    S.out_reader = -1;
                    S.out_shared = false;
                }
            }
            int kept = 0;
            for (int i = 0; i < S.drain_count; i++) {
                char chunk[65536];
                bool ended = i < drains && p[drains_at + i].revents && read(S.drains[i], chunk, sizeof chunk) == 0;
                if (ended) close(S.drains[i]);
                else S.drains[kept++] = S.drains[i];
            }
            S.drain_count = kept;
            for (int i = 0; i < MAX_CLIENTS; i++)
                if (p[of_client[i]].revents && p[of_client[i]].fd == S.clients[i] && S.clients[i] >= 0) read_client(i);
            if (p[0].revents) accept_client();
        }
        reap(); /* always: a signal does not interrupt a ppoll that finds something ready */
        check_time();
    }
}

/* ---- file tools, run as children so that they have the user's rights and cannot hold us up ------------------ */

static int get_file(const char *path, const char *limit_text) {
    long long limit = atoll(limit_text);
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) return errno;
    if (S_ISDIR(st.st_mode)) return EISDIR;
    if (!S_ISREG(st.st_mode)) return EINVAL;
    if (st.st_size > limit) return EFBIG;
    static char chunk[65536];
    long long total = 0;
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) > 0) {
        if ((total += n) > limit) return EFBIG;
        if (!write_all(1, chunk, (size_t)n)) return EIO;
    }
    return n < 0 ? errno : 0;
}

static int put_file(const char *path) {
    char parent[PATH_MAX];
    if (snprintf(parent, sizeof parent, "%s", path) >= (int)sizeof parent) return ENAMETOOLONG;
    for (char *at = parent + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        if (mkdir(parent, 0777) && errno != EEXIST) return errno;
        *at = '/';
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return errno;
    if (!S_ISREG(st.st_mode)) return EINVAL;
    static char chunk[65536];
    ssize_t n;
    while ((n = read(0, chunk, sizeof chunk)) > 0)
        if (!write_all(fd, chunk, (size_t)n)) return errno;
    if (n < 0) return errno;
    return close(fd) ? errno : 0;
}

int main(int argc, char **argv) {
    umask(022);
    if (argc == 6 && strcmp(argv[1], "serve") == 0) serve(argv + 2);
    if (argc == 4 && strcmp(argv[1], "get") == 0) return get_file(argv[2], argv[3]);
    if (argc == 3 && strcmp(argv[1], "put") == 0) return put_file(argv[2]);
    dprintf(2, "tvsnap-init: runs inside a sandbox\n");
    return 125;
}
