#include "shell_end.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "action.h"
#include "connections.h"
#include "proc.h"
#include "processes.h"
#include "reports.h"
#include "shell.h"

enum { NOT_EXECUTED = 125, NO_SHELL = 127 }; /* exit statuses: of die, and of a program that could not be run */

/* Reports that the command was not run because there is no shell. */
static void tell_no_shell(int status) {
    char text[128];
    const char *how = WIFSIGNALED(status) ? "signal" : "exit status";
    int n, number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    if (access("/bin/bash", X_OK)) n = snprintf(text, sizeof text, "no shell: /bin/bash: %s\n", error_text(errno));
    else if (WIFEXITED(status) && number == NOT_EXECUTED)
        n = snprintf(text, sizeof text, "no shell: /bin/bash cannot be executed\n");
    else n = snprintf(text, sizeof text, "no shell: /bin/bash ended before it was ready, %s %d (~/.bashrc?)\n", how, number);
    capture_add(&action.capture, text, (size_t)n);
    action.exit_code = NO_SHELL;
}

/* The shell is gone, with its state: tells the client that waits for it. Another one is started once every process that
 * ended with it is reaped, since these count against the sandbox's limit. */
void shell_ended(int status) {
    read_report();
    guest.shell = 0;
    guest.unready = guest.mode == SHELL_STARTING;
    bool at_fault = guest.unready && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* SIGKILL: others killed it */
    if (action.kind == RUN && (action.fed || at_fault || action.timed_out)) {
        action.exit_code = action.timed_out ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        action.shell_lost = true;
        if (action.timed_out) kill_new();
        else if (!action.fed) tell_no_shell(status); /* the next one would end in the same way */
        if (!action.fed && !guest.proven && !action.timed_out) {
            answer_text(action.client, ANSWER_ERROR, "the image has no usable /bin/bash");
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
    else guest.restart_at = INT64_MAX; /* the next one would end like this one until something changes: want_shell */
    close_shell_ends();
    set_mode(SHELL_GONE);
}

/* Whether a signal is pending for the shell. */
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
    struct life l;
    if (!read_life(guest.shell, &l)) return false;
    return has_ended(&l) || l.flags & EXITING || shell_has_pending(SIGKILL);
}

/* A program may have killed the shell (`kill -9 -1`): waits for its end, so that the next call does not find it. */
void await_dying_shell(void) {
    int status;
    for (int i = 0; i < 1000 && guest.shell && shell_is_dying(); i++) {
        if (waitpid(guest.shell, &status, WNOHANG) == guest.shell) shell_ended(status);
        else usleep(100);
    }
}
