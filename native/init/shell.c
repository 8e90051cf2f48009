#include "shell.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "action.h"
#include "child.h"
#include "connections.h"
#include "home.h"
#include "output.h"
#include "proc.h"
#include "shell_mode.h"

/* The shell's descriptors; rc uses these numbers. */
enum { SHELL_WAKE = 27, SHELL_REPORT = 28, SHELL_COMMAND = 29 };

/* Saves the startup file. */
void read_rc(void) {
    int fd = open(RC_PATH, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || !read_all(fd, &guest.rc)) die(RC_PATH);
    close(fd);
}

/* Restores the startup file. */
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

void close_shell_ends(void) {
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

/* Kills a shell that is out of control. Its further reports are ignored, so that no command is fed to a dying shell. */
void give_shell_up(void) {
    if (guest.shell) signal_child(guest.shell, SIGKILL);
    if (guest.report >= 0) close(guest.report);
    guest.report = -1;
    guest.loss_untold = true;
}

/* Changes the shell's mode. If that transition is impossible, the shell's state is unknown: the action is answered
 * with an error, and the shell is killed; returns false then. */
bool set_mode(enum shell_mode mode) {
    char why[128];
    if (may_follow(guest.mode, mode)) {
        guest.mode = mode;
        return true;
    }
    snprintf(why, sizeof why, "the shell, which was %s, cannot be %s next", mode_name(guest.mode), mode_name(mode));
    dprintf(2, "tvsnap-init: %s\n", why);
    if (action.kind != NOTHING) {
        answer_text(action.client, ANSWER_ERROR, "%s", why);
        forget_action();
    }
    give_shell_up();
    return false;
}

/* Returns false, with errno, if the sandbox lacks a process or a terminal: commands may have used up either. */
bool start_shell(void) {
    int wake[2] = {-1, -1}, report[2] = {-1, -1};
    char name[64];
    int number = 0, unlock = 0;
    close_shell_ends();
    keep_rc();
    guest.once_ready = false;
    guest.shell_started = now_us();
    guest.master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    bool ready = guest.master >= 0 && ioctl(guest.master, TIOCGPTN, &number) == 0 &&
                 ioctl(guest.master, TIOCSPTLCK, &unlock) == 0 && pipe2(wake, O_CLOEXEC) == 0 &&
                 pipe2(report, O_CLOEXEC) == 0;
    /* Before the fork, since a program that cannot be executed may have ended before PID 1 goes on. */
    if (ready && write(wake[1], guest.bare ? "bare\n" : "full\n", 5) != 5) die("pipe"); /* it is empty */
    guest.wake = wake[1];
    guest.report = report[0];
    struct winsize size = {.ws_row = guest.rows, .ws_col = guest.columns};
    if (ready) ioctl(guest.master, TIOCSWINSZ, &size);
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    if (ready && chown(name, guest.user.uid, guest.user.gid)) errno = 0; /* a terminal of another owner still works */
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
        set_mode(SHELL_STARTING);
        set_nonblocking(guest.master);
        set_nonblocking(guest.wake);
        set_nonblocking(guest.report);
        return true;
    }
    setsid();
    int terminal = open(name, O_RDWR | O_CLOEXEC);
    if (terminal < 0) die(name);
    ioctl(terminal, TIOCSCTTY, 0);
    /* With many drains, a descriptor may itself have one of the numbers that are used here. */
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
    set_variables(&guest.user);
    if (!become(&guest.user)) die("user");
    if (chdir(guest.cwd) && chdir("/")) die("chdir");
    execl("/bin/bash", "bash", "--noprofile", "--rcfile", RC_PATH, "-i", NULL);
    die("/bin/bash");
}

/* Starts the shell that is due; tries again later if that fails. */
void restart_shell(void) {
    if (!start_shell()) guest.restart_at = now_us() + RESTART_US;
}

/* Called when the shell is about to be used. */
void want_shell(void) {
    if (!guest.shell && guest.restart_at == INT64_MAX) guest.restart_at = now_us();
}

/* Orders the waiting shell to run the command (`c`), or to use its terminal (`p`). */
static void give_order(char what) {
    char line[32];
    int n = snprintf(line, sizeof line, "%c%u\n", what, guest.report_number);
    /* Forged reports can make us fill the pipe. */
    if (write(guest.wake, line, (size_t)n) < 0 && errno == EAGAIN) give_shell_up();
}

/* Gives the waiting shell the pending command, and an output that no job of an earlier command has open. */
void feed_command(void) {
    const char *text = action.pending.data ? action.pending.data : "";
    size_t length = action.pending.length;
    if (ftruncate(guest.command, 0) || pwrite(guest.command, text, length, 0) != (ssize_t)length) {
        refuse_action("the command could not be handed to the shell", errno);
        return;
    }
    guest.sequence += !action.fed;
    action.given++;
    if (!keep_output_fifo() && (errno == ENOSPC || errno == EDQUOT)) {
        refuse_action("nothing could take the command's output", errno);
        return;
    }
    open_output();
    action.output = guest.out_reader;
    if (!set_mode(SHELL_RUNNING)) return;
    action.fed = true;
    guest.dump_ready = false;
    give_order('c');
}

/* Lets an idle shell use its terminal. */
void to_prompt(void) {
    if (guest.mode != SHELL_IDLE || !set_mode(SHELL_PROMPT)) return;
    guest.dump_ready = false;
    give_order('p');
}
