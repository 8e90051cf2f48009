/* One program of a build, in its own namespaces: in a tree, as root of a user namespace; or, without a lower layer,
 * in this machine's own root, with its rights.
 *
 * A tree is mounted before the user namespace is entered, since nothing can be mounted in there. It uses the host's
 * network, as package managers need it. Standard output gets the program's output, and standard error why it could
 * not be started: the status is 127 then if the program is the reason, and 1 if the machine does not allow it. All
 * that the program started ends when it does, when our parent does, and when we are terminated (SIGTERM), before we
 * exit. */
#include "build.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "mounts.h"
#include "options.h"
#include "owners.h"
#include "signals.h"

enum { CANNOT_START = 127 };

static int program = -1; /* a pidfd */

/* The end of its first process ends a PID namespace, and waiting for that process waits for all of them. */
static void end(int number) {
    (void)number;
    if (program < 0) _exit(1);
    syscall(SYS_pidfd_send_signal, program, SIGKILL, NULL, 0);
}

static void die_with_parent(void) {
    check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "death signal");
}

/* `users`: the user namespace, or -1; `parent`: a pipe that our parent holds open. */
_Noreturn static void become_program(int users, int parent) {
    complaints = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    check(complaints >= 0 && dup2(STDOUT_FILENO, STDERR_FILENO) >= 0, "standard error");
    reset_signals();
    umask(022);
    die_with_parent();
    check(sethostname(O.hostname, strlen(O.hostname)) == 0, "host name");
    if (users < 0) {
        private_mounts();
        check(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0, "mount of /proc");
    } else {
        own_mounts();
        mount_tree();
        enter_root(O.id_base + TTY_GROUP);
        check(setns(users, CLONE_NEWUSER) == 0 && setgroups(0, NULL) == 0, "user namespace");
        check(setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0, "root of the user namespace");
        die_with_parent(); /* changing ids resets it */
    }
    if (poll(&(struct pollfd){.fd = parent}, 1, 0)) _exit(1); /* it died before the death signal was set */
    failure = CANNOT_START;
    check(chdir(O.directory) == 0, O.directory);
    execvp(O.command[0], O.command);
    fail(O.command[0]);
}

int build(void) {
    char map[64];
    int users = -1, alive[2], status;
    signal(SIGTERM, end);
    die_with_parent();
    if (getppid() != O.parent) return 1;
    if (O.lower_count) {
        snprintf(map, sizeof map, "0 %lu %lu\n", O.id_base, O.id_count);
        check((users = open_namespace(0, map, map)) >= 0, "user namespace");
    }
    check(pipe2(alive, O_CLOEXEC) == 0, "pipe");
    unsigned long flags = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD | SIGCHLD;
    pid_t pid = (pid_t)syscall(SYS_clone, flags, NULL, &program, NULL, NULL);
    check(pid >= 0, "namespaces");
    if (pid == 0) {
        close(alive[1]);
        become_program(users, alive[0]);
    }
    close(alive[0]);
    while (waitpid(pid, &status, 0) < 0) check(errno == EINTR, "waitpid");
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
