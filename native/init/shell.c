/* The persistent shell: its start, the commands it is fed, its reports, its terminal. The other end is rc. */
#include "guest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* The shell's ends; rc knows these numbers. */
enum { SHELL_WAKE = 27, SHELL_REPORT = 28, SHELL_COMMAND = 29 };

enum {
    TERMINAL_KEEP = 256 * 1024,
    RESTART_US = 100000,           /* between two attempts to start a shell */
    HEADER_LIMIT = 48,             /* bytes of a report's first line */
    REPORT_LIMIT = 8 * 1024 * 1024 /* bytes of a report; a shell that says more is ended */
};

/* How long a terminal is silent that is taken to have answered its keys. */
enum { QUIET_US = 100000 };

enum { NOT_EXECUTED = 125, NO_SHELL = 127 }; /* exit statuses: of die, and of what could not be run */

/* A SIGINT that is on its way when the shell reports must find it still ours. */
enum { SETTLE_US = 3000 };

/* Remembers the startup file. */
void read_rc(void) {
    int fd = open(RC_PATH, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || !read_all(fd, &guest.rc)) die(RC_PATH);
    close(fd);
}

/* Makes the startup file what it was. */
static void keep_rc(void) {
    struct buffer now = {0};
    int fd = open(RC_PATH, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    bool same = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (size_t)st.st_size == guest.rc.length &&
                read_all(fd, &now) && now.length == guest.rc.length &&
                memcmp(now.data, guest.rc.data, now.length) == 0;
    if (fd >= 0) close(fd);
    release(&now);
    if (same) return;
    make_home();
    clear_path(RC_PATH);
    fd = open(RC_PATH, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (fd < 0) return;
    write_all(fd, guest.rc.data, guest.rc.length);
    close(fd);
}

/* A new FIFO at the place of the old one, which whoever has it open keeps. */
bool make_output_fifo(void) {
    make_home();
    /* Where it lies in a layer below, as in forks on Docker, overlayfs goes on counting the link of a file that is open
     * and deleted, and CRIU then takes it for one that has another name. A copy above is counted as any file is. */
    if (lchown(OUTPUT_PATH, guest.user.uid, guest.user.gid)) errno = 0;
    clear_path(OUTPUT_PATH);
    return mkfifo(OUTPUT_PATH, 0622) == 0 && chmod(OUTPUT_PATH, 0622) == 0 &&
           chown(OUTPUT_PATH, guest.user.uid, guest.user.gid) == 0;
}

/* Opens our end of the FIFO, from which the output of the next command is read. */
static void open_output(void) {
    struct stat st;
    if (guest.out_reader >= 0) close(guest.out_reader);
    guest.out_reader = open(OUTPUT_PATH, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (guest.out_reader >= 0 && (fstat(guest.out_reader, &st) || !S_ISFIFO(st.st_mode))) {
        close(guest.out_reader); /* a command put something else there: poll would call it ready for ever */
        guest.out_reader = -1;
    }
}

/* Leaves the output of the last command to the jobs that hold it, and makes another: at once, so that between two calls
 * we are the same whatever the one before was. */
void renew_output(void) {
    leave_to_drain(guest.out_reader);
    guest.out_reader = -1;
    make_output_fifo();
    open_output();
}

static void close_shell_ends(void) {
    int *ends[] = {&guest.master, &guest.wake, &guest.report};
    for (int i = 0; i < 3; i++) {
        if (*ends[i] >= 0) close(*ends[i]);
        *ends[i] = -1;
    }
    release(&guest.incoming);
    release(&guest.typing);
    guest.typed = 0;
    guest.dump_ready = false;
}

/* False, with errno, if the sandbox lacks a process or a terminal for it: commands may have used up either. */
bool start_shell(void) {
    int wake[2] = {-1, -1}, report[2] = {-1, -1};
    char name[64];
    int number = 0, unlock = 0;
    close_shell_ends();
    keep_rc();
    guest.mode = SHELL_STARTING;
    guest.fresh_kernel = 0;
    guest.shell_started = now_us();
    guest.master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    bool ready = guest.master >= 0 && ioctl(guest.master, TIOCGPTN, &number) == 0 &&
                 ioctl(guest.master, TIOCSPTLCK, &unlock) == 0 && pipe2(wake, O_CLOEXEC) == 0 &&
                 pipe2(report, O_CLOEXEC) == 0;
    guest.wake = wake[1];
    guest.report = report[0];
    struct winsize size = {.ws_row = guest.rows, .ws_col = guest.columns};
    if (ready) ioctl(guest.master, TIOCSWINSZ, &size);
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    if (ready && chown(name, guest.user.uid, guest.user.gid)) { /* a terminal that is not owned still works */
    }
    pid_t pid = ready ? fork() : -1;
    if (pid) {
        int error = errno;
        if (wake[0] >= 0) close(wake[0]);
        if (report[1] >= 0) close(report[1]);
        guest.shell = pid > 0 ? pid : 0;
        if (pid < 0) {
            close_shell_ends();
            errno = error;
            return false;
        }
        set_nonblocking(guest.master);
        set_nonblocking(guest.wake);
        if (write(guest.wake, guest.bare ? "bare\n" : "full\n", 5) != 5) die("pipe"); /* it is empty */
        set_nonblocking(guest.report);
        return true;
    }
    setsid();
    int terminal = open(name, O_RDWR | O_CLOEXEC);
    if (terminal < 0) die(name);
    ioctl(terminal, TIOCSCTTY, 0);
    /* With many drains, a descriptor may itself have one of the numbers that are about to be taken. */
    int *sources[] = {&wake[0], &report[1], &guest.command, &terminal};
    for (int i = 0; i < 4; i++) {
        if (*sources[i] < SHELL_WAKE || *sources[i] > SHELL_COMMAND) continue;
        *sources[i] = fcntl(*sources[i], F_DUPFD_CLOEXEC, SHELL_COMMAND + 1);
        if (*sources[i] < 0) die("descriptor");
    }
    use_fd(wake[0], SHELL_WAKE);
    use_fd(report[1], SHELL_REPORT);
    use_fd(guest.command, SHELL_COMMAND);
    for (int i = 0; i < 3; i++) use_fd(terminal, i);
    become_ordinary();
    environ = guest.environment;
    setenv("HOME", guest.user.home, 0);
    setenv("USER", guest.user.name, 0);
    setenv("LOGNAME", guest.user.name, 0);
    setenv("SHELL", "/bin/bash", 0);
    if (!become(&guest.user)) die("user");
    if (chdir(guest.cwd) && chdir("/")) die("chdir");
    execl("/bin/bash", "bash", "--noprofile", "--rcfile", RC_PATH, "-i", NULL);
    die("/bin/bash");
}

/* Ends a shell that cannot be talked to any more. What it may still say is not heard: no command is fed to a dying one. */
void give_shell_up(void) {
    if (guest.shell) kill(guest.shell, SIGKILL);
    if (guest.report >= 0) close(guest.report);
    guest.report = -1;
    guest.loss_untold = true;
}

/* Gives the waiting shell the command of a number, or hands it to the terminal: what is typed there can see the number,
 * which must be the same each time then. */
static void wake_shell(char what, unsigned number) {
    char line[32];
    int n = snprintf(line, sizeof line, "%c %u\n", what, number);
    /* Forged reports can have us fill the pipe. */
    if (write(guest.wake, line, (size_t)n) < 0 && errno == EAGAIN) give_shell_up();
}

/* Hands the waiting shell the pending command, and an output that no job of an earlier one holds. */
void feed_command(void) {
    const char *text = action.pending.data ? action.pending.data : "";
    size_t length = action.pending.length;
    char number[16]; /* behind the command, for the shell to take when it has run: meanwhile no variable of it tells */
    size_t digits = (size_t)snprintf(number, sizeof number, "%c%u\n", 0, guest.sequence + 1);
    if (ftruncate(guest.command, 0) || pwrite(guest.command, text, length, 0) != (ssize_t)length ||
        pwrite(guest.command, number, digits, (off_t)length) != (ssize_t)digits) {
        answer_text(action.client, 'E', "the command could not be handed to the shell: %s", strerror(errno));
        forget_action();
        return;
    }
    lseek(guest.command, 0, SEEK_SET);
    guest.sequence++;
    action.attempts++;
    struct stat st;
    if ((lstat(OUTPUT_PATH, &st) || !S_ISFIFO(st.st_mode)) && !make_output_fifo() &&
        (errno == ENOSPC || errno == EDQUOT)) {
        answer_text(action.client, 'E', "nothing could take the command's output: %s", strerror(errno));
        forget_action();
        return;
    }
    open_output();
    action.output = guest.out_reader;
    guest.mode = SHELL_RUNNING;
    action.fed = true;
    guest.dump_ready = false;
    wake_shell('c', guest.sequence);
}

/* An idle shell goes to its terminal. */
void to_prompt(void) {
    if (guest.mode == SHELL_IDLE) {
        guest.mode = SHELL_PROMPT;
        guest.dump_ready = false;
        wake_shell('p', 0);
    }
}

/* Length of the header, newline included, that `text` begins with; 0 if it may yet become one, -1 if it cannot. */
static ssize_t header_length(const char *text, size_t length) {
    for (size_t i = 0; i < length && i < HEADER_LIMIT; i++) {
        if (i == 0 && text[i] != 'S') return -1;
        if (text[i] == '\n') return (ssize_t)i + 1;
        if (text[i] < ' ' || text[i] > '~') return -1;
    }
    return length < HEADER_LIMIT ? 0 : -1;
}

/* The command is done; its output has been written. */
static void take_header(const char *text, size_t length) {
    char line[HEADER_LIMIT + 1];
    memcpy(line, text, length);
    line[length] = 0;
    if (guest.mode == SHELL_IDLE) guest.mode = SHELL_STARTING; /* it was interrupted while it waited */
    int status, ran;
    unsigned sequence;
    action.unread = false;
    if (sscanf(line, "S%d %d %u\n", &status, &ran, &sequence) != 3) return;
    if (action.kind != RUN || !action.fed || action.reported) return;
    action.unread = !ran && sequence != guest.sequence;
    if (sequence != guest.sequence) return;
    if (!ran && !action.timed_out) return;
    action.reported = true;
    action.exit_code = action.timed_out ? -1 : status;
    if (!action.timed_out) finish_action();
}

/* The shell waits for what comes next. */
static void take_state(const char *text, size_t length) {
    release(&guest.dump);
    append(&guest.dump, text, length);
    guest.dump_ready = guest.proven = true;
    guest.unready = false;
    guest.mode = SHELL_IDLE;
    if (guest.out_reader < 0) open_output();
    if (!guest.fresh_kernel) guest.fresh_kernel = kernel_attributes(guest.shell, false);
    if (action.kind == RUN && action.unread) { /* fed again, the command would run twice */
        guest.mode = SHELL_RUNNING;
    } else if (action.kind == RUN && action.timed_out) {
        action.settled = now_us() + SETTLE_US;
    } else if (action.kind == RUN && action.attempts < 3) { /* also when it was interrupted before it began */
        feed_command();
    } else if (action.kind == RUN && !guest.loss_untold) { /* as with too few file descriptors left to it: another can */
        static const char why[] = "the shell could not open its output, and was ended\n";
        capture_add(&action.capture, why, sizeof why - 1);
        guest.mode = SHELL_RUNNING;
        give_shell_up();
    }
    if (action.kind == KEYS || anyone_attached()) to_prompt();
}

/* The shell reports `S<status> <ran> <sequence>\n` the moment a command is done, then its state, ended by a NUL.
 *
 * Commands do not inherit the descriptor but can open it through /proc, so that anything may arrive. What cannot be
 * a report is skipped; one read a turn, so that a flood of reports holds up nothing else. */
void read_report(void) {
    char chunk[65536];
    ssize_t n = read(guest.report, chunk, sizeof chunk);
    if (n == 0) { /* the shell was replaced (exec) or closed it: nothing will come, and poll would not stop saying so */
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
    if (b->length - at > REPORT_LIMIT) give_shell_up();
    if (at == b->length || guest.report < 0) {
        release(b);
    } else if (at) {
        memmove(b->data, b->data + at, b->length - at);
        b->length -= at;
    }
}

/* Types what the terminal takes without waiting. A program that writes while it reads must find its output read. */
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

/* Keeps what the terminal shows and passes it on; a client that is slow to read misses some. One turn's worth. */
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
        for (int i = 0; i < MAX_CLIENTS; i++)
            if (guest.clients[i].attached && write(guest.clients[i].output, chunk, (size_t)n) < 0 &&
                errno != EAGAIN)
                drop_client(i);
        if (action.kind == KEYS && !action.pending.length) action.quiet_until = now_us() + QUIET_US;
    }
}

/* Makes the terminal show what another sandbox's showed: the shell has just been made like the one there.
 *
 * Args: what was kept of the bytes sent to it, how many were sent in all, and the number of the last command. */
void put_terminal_back(const void *shown, size_t length, uint64_t count, unsigned sequence) {
    read_terminal(); /* what the making left there */
    release(&guest.terminal);
    append(&guest.terminal, shown, length);
    guest.terminal_count = count;
    guest.sequence = sequence;
    guest.bare = false;
}

/* The command was not run, for there is no shell that could have. */
static void tell_no_shell(int status) {
    char text[128];
    const char *how = WIFSIGNALED(status) ? "signal" : "exit status";
    int n, number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    if (access("/bin/bash", X_OK)) n = snprintf(text, sizeof text, "no shell: /bin/bash: %s\n", strerror(errno));
    else if (WIFEXITED(status) && number == NOT_EXECUTED)
        n = snprintf(text, sizeof text, "no shell: /bin/bash cannot be executed\n");
    else n = snprintf(text, sizeof text, "no shell: /bin/bash ended before it was ready, %s %d (~/.bashrc?)\n", how, number);
    capture_add(&action.capture, text, (size_t)n);
    action.exit_code = NO_SHELL;
}

/* The shell is gone, with its state: whoever waits for it learns so. Another one is started once every process that
 * ended with it is reaped: until then they count against the sandbox's limit. */
void shell_ended(int status) {
    read_report();
    guest.shell = 0;
    guest.unready = guest.mode == SHELL_STARTING;
    bool at_fault = guest.unready && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* else another killed it */
    if (action.kind == RUN && (action.fed || at_fault || action.timed_out)) {
        action.exit_code = action.timed_out ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        action.shell_lost = true;
        if (action.timed_out) kill_new();
        else if (!action.fed) tell_no_shell(status); /* the next would end alike */
        if (!action.fed && !guest.proven && !action.timed_out) {
            answer_text(action.client, 'E', "the image has no usable /bin/bash");
            forget_action();
        } else {
            finish_action();
        }
    } else {
        guest.loss_untold = true;
    }
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (guest.clients[i].attached) drop_client(i);
    if (!guest.unready) guest.restart_at = now_us();
    else if (WIFSIGNALED(status)) guest.restart_at = now_us() + RESTART_US;
    else guest.restart_at = INT64_MAX; /* the next would end like this one, unless something is done about it: want_shell */
    close_shell_ends();
    guest.mode = SHELL_STARTING;
}

/* Somebody is about to use the shell. */
void want_shell(void) {
    if (!guest.shell && guest.restart_at == INT64_MAX) guest.restart_at = now_us();
}

/* Whether the shell was sent a signal that it has not come to notice. */
bool shell_has_pending(int signal) {
    static const char *const kinds[] = {"\nSigPnd:", "\nShdPnd:"};
    char text[4096];
    unsigned long long pending;
    if (read_proc(guest.shell, "status", text, sizeof text) <= 0) return false;
    for (int i = 0; i < 2; i++) {
        const char *line = strstr(text, kinds[i]);
        if (line && sscanf(line + 8, "%llx", &pending) == 1 && pending >> (signal - 1) & 1) return true;
    }
    return false;
}

static bool shell_is_dying(void) {
    enum { EXITING = 4 }; /* PF_EXITING of the kernel */
    char text[4096], state;
    unsigned flags;
    char *end = read_proc(guest.shell, "stat", text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    if (!end || sscanf(end + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2) return false;
    return state == 'Z' || state == 'X' || flags & EXITING || shell_has_pending(SIGKILL);
}

/* A program may have killed the shell (`kill -9 -1`): once it has ended, the next call is not to find that shell. */
void await_dying_shell(void) {
    int status;
    for (int i = 0; i < 1000 && guest.shell && shell_is_dying(); i++) {
        if (waitpid(guest.shell, &status, WNOHANG) == guest.shell) shell_ended(status);
        else usleep(100);
    }
}

/* Starts the shell that is due; later, if it cannot be started now. */
void restart_shell(void) {
    if (!start_shell()) guest.restart_at = now_us() + RESTART_US;
}

/* Whether the shell reads its terminal, or is about to: a program that has ended holds it until the shell takes note. */
bool shell_has_terminal(void) {
    pid_t group = 0;
    return ioctl(guest.master, TIOCGPGRP, &group) == 0 && (group == guest.shell || !group_lives(group));
}

/* The command line of what holds the terminal. */
void foreground_name(char *out, size_t room) {
    pid_t group = 0;
    snprintf(out, room, "a program");
    if (ioctl(guest.master, TIOCGPGRP, &group) || group <= 0) return;
    ssize_t n = read_proc(group, "cmdline", out, room);
    for (ssize_t i = 0; i + 1 < n; i++)
        if (!out[i]) out[i] = ' ';
}
