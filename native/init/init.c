/* PID 1 of a sandbox: reaps processes, holds the shell's terminal, and answers requests on a Unix socket.
 *
 * It is static, and every descriptor that it has ends inside the sandbox, so that a checkpoint has no outside ends
 * except, if they are used, standard input and output. See protocol.h for its protocol.
 *
 *   tvsnap-init serve COLUMNS ROWS USER CWD   PID 1; its environment becomes the shell's. If standard input is a pipe
 *                                             or a socket, descriptors 0 and 1 are a client as well (clients.c)
 *   tvsnap-init connect             connects stdin and stdout to PID 1, as one more client
 *   tvsnap-init get PATH LIMIT      file to stdout; the exit status is the errno, 0 for success
 *   tvsnap-init put PATH            stdin to file, creating parent directories; exit status likewise
 *   tvsnap-init who USER            tells the numbers, groups and home directory of a user (users.c)
 *   tvsnap-init look, pack, unpack  files and folders in many small requests (trees.c)
 *   tvsnap-init together            several commands in parallel (together.c)
 *   tvsnap-init walk ...            lists files (walk.c)
 *   tvsnap-init processes SHELL SERVICE...   lists processes, and what the shell holds (census.c)
 *   tvsnap-init holds PID...        what processes hold that others can change (census.c)
 *   tvsnap-init within SECONDS ...  one of the last three, killed after so much processor time
 *   tvsnap-init amend               sets modification times from stdin (amend.c)
 *   tvsnap-init enter, begin ...    runs a program in its own root directory (roots.c)
 *
 * TVSNAP_UNSET in PID 1's environment: names of unwanted variables that the starting program adds. TVSNAP_BARE: the
 * shell reads no startup file of the user's, since it is to be made like another. TVSNAP_BINDS: directories to be
 * mounted at other places before anything runs, two lines each.
 *
 * This file has the event loop. Nothing that it calls may wait long: while PID 1 waits, no timeout is enforced.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "action.h"
#include "amend.h"
#include "bridge.h"
#include "census.h"
#include "clients.h"
#include "command_line.h"
#include "confine.h"
#include "connections.h"
#include "exec.h"
#include "files.h"
#include "home.h"
#include "inner.h"
#include "output.h"
#include "reports.h"
#include "roots.h"
#include "shell.h"
#include "shell_end.h"
#include "terminal.h"
#include "timing.h"
#include "together.h"
#include "trees.h"
#include "walk.h"

enum { FIRST_SHELL = 16 }; /* the shell's process id; runtimes use up to ten */

static void reap(void) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == guest.shell) shell_ended(status);
        else if (action.kind == EXEC && pid == action.child) {
            action.exit_code = action.timed_out ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            drain_output();
            await_dying_shell();
            finish_action();
        }
    }
}

static volatile sig_atomic_t woken; /* by a child's end, or by the host if it does not find our socket */

static void on_child(int signal) { woken = signal; }

/* Removes a variable from the environment without a trace: from the shell's, and from ours in /proc. */
static bool take_variable(const char *name, char *value, size_t room) {
    char *found = getenv(name);
    if (!found) return false;
    if (value) snprintf(value, room, "%s", found);
    unsetenv(name);
    memset(found - strlen(name) - 1, 0, strlen(name) + 1 + strlen(found));
    return true;
}

/* Uses up process ids, so that the shell has the id FIRST_SHELL everywhere: what started us, such as a container's
 * runtime, has used some before. The kernel does it at once if it lets us. */
static void skip_process_ids(void) {
    if (number_processes(FIRST_SHELL - 1)) return;
    for (pid_t pid = 0; pid < FIRST_SHELL - 1;) {
        pid = vfork();
        if (pid == 0) _exit(0);
        if (pid < 0) return; /* no process is available, which starting the shell will report */
        waitpid(pid, NULL, 0);
    }
}

static void prepare(char **argv) {
    guest.columns = (unsigned short)atoi(argv[0]);
    guest.rows = (unsigned short)atoi(argv[1]);
    guest.listener = guest.master = guest.wake = guest.report = guest.out_reader = -1;
    guest.bare = take_variable("TVSNAP_BARE", NULL, 0);
    char unset[256], *rest = unset;
    static char binds[65536];
    bool bound = take_variable("TVSNAP_BINDS", binds, sizeof binds);
    if (take_variable("TVSNAP_UNSET", unset, sizeof unset))
        for (char *name; (name = strsep(&rest, " "));) unsetenv(name);
    guest.environment = environ;
    for (int i = 0; i < MAX_CLIENTS; i++) guest.clients[i].input = guest.clients[i].output = -1;
    struct stat input;
    bool in_container = fstat(0, &input) == 0 && (S_ISFIFO(input.st_mode) || S_ISSOCK(input.st_mode));
    if (in_container) serve_stdio();
    if (!find_user(argv[2], &guest.user)) {
        errno = ENOENT;
        die(argv[2]);
    }
    snprintf(guest.cwd, sizeof guest.cwd, "%s", argv[3]);
    umask(022);
    skip_process_ids();
    protect_proc();
    if (bound) bind_directories(binds);
    filter_system_calls(in_container);
    drop_capabilities();
    set_resource_limits();
    struct sigaction wake_up = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &wake_up, NULL);
    signal(SIGPIPE, SIG_IGN);
    guest.command = memfd_create("command", MFD_CLOEXEC);
    if (guest.command < 0) die("memfd");
    if (!listen_here()) die(CONTROL_PATH);
    read_rc();
    make_output_fifo();
}

/* Waits for the first event, including a signal in `mask`, and handles it. */
static void turn(const sigset_t *mask) {
    enum { LISTENER, MASTER, REPORT, OUTPUT, INPUT, FIRST_CLIENT };
    enum { FIRST_DRAIN = FIRST_CLIENT + MAX_CLIENTS };
    struct pollfd p[FIRST_DRAIN + MAX_DRAINS] = {
        [LISTENER] = {.fd = guest.listener, .events = POLLIN},
        [MASTER] = {.fd = guest.master, .events = POLLIN | (guest.typing.length ? POLLOUT : 0)},
        [REPORT] = {.fd = guest.report, .events = POLLIN},
        [OUTPUT] = {.fd = action.output, .events = POLLIN},
        [INPUT] = {.fd = action.input, .events = POLLOUT},
    };
    int drains = guest.drain_count;
    for (int i = 0; i < MAX_CLIENTS; i++) p[FIRST_CLIENT + i] = awaited(&guest.clients[i]);
    for (int i = 0; i < drains; i++) p[FIRST_DRAIN + i] = (struct pollfd){guest.drains[i], POLLIN, 0};
    int wait = next_wakeup_ms();
    struct timespec t = {.tv_sec = wait / 1000, .tv_nsec = wait % 1000 * 1000000L};
    if (ppoll(p, (nfds_t)(FIRST_DRAIN + drains), wait < 0 ? NULL : &t, mask) <= 0) return;

    /* Each handler may close descriptors of later entries: hence the comparisons. */
    if (p[REPORT].revents) read_report();
    if (p[MASTER].revents & POLLIN) read_terminal();
    else if (p[MASTER].revents & ~POLLOUT) usleep(1000); /* no program has the terminal open at the moment */
    if (p[MASTER].revents & POLLOUT) type_on();
    if (p[OUTPUT].revents && p[OUTPUT].fd == action.output && drain_output() && action.kind == RUN) {
        /* no writer is left, or none was there yet: the shell's report tells which; avoid spinning meanwhile */
        struct pollfd quiet = {.fd = guest.report, .events = POLLIN};
        poll(&quiet, 1, 1);
    } else if (p[OUTPUT].revents & POLLHUP && action.kind == EXEC && p[OUTPUT].fd == action.output) {
        if (drain_output()) {
            close(action.output);
            action.output = -1;
        }
    }
    if (p[INPUT].revents && p[INPUT].fd == action.input) feed_input();
    read_drains(p + FIRST_DRAIN, drains);
    for (int i = 0; i < MAX_CLIENTS; i++)
        if (p[FIRST_CLIENT + i].revents && guest.clients[i].input >= 0) serve_client(i);
    if (p[LISTENER].revents) accept_client();
}

_Noreturn static void serve(char **argv) {
    sigset_t blocked, open_mask;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &open_mask);
    prepare(argv);
    if (!start_shell()) die("shell");
    guest.fresh_inner = inner_state();
    guest.fresh_home = home_contents();
    for (;;) {
        turn(&open_mask);
        if (woken) {
            woken = 0;
            keep_listening();
        }
        reap(); /* always: a signal does not interrupt a ppoll that finds something ready */
        check_time();
    }
}

int main(int argc, char **argv) {
    umask(022);
    argv = take_arguments(argc, argv);
    if (argc == 6 && strcmp(argv[1], "serve") == 0) serve(argv + 2);
    static char room[65536];
    setvbuf(stdout, room, _IOFBF, sizeof room); /* some libraries' own buffer is a sixtieth of that */
    if (argc == 2 && strcmp(argv[1], "connect") == 0) return bridge();
    if (argc >= 4 && strcmp(argv[1], "within") == 0) {
        rlim_t most = (rlim_t)atoi(argv[2]);
        setrlimit(RLIMIT_CPU, &(struct rlimit){most, most}); /* equal limits: SIGKILL, without a core dump */
        argc -= 2, argv += 2;
    }
    if (argc >= 4 && strcmp(argv[1], "walk") == 0) return walk_main(argv + 2);
    if (argc >= 3 && strcmp(argv[1], "processes") == 0) return census((pid_t)atoi(argv[2]), argv + 3);
    if (argc >= 3 && strcmp(argv[1], "holds") == 0) return holds_main(argv + 2);
    if (argc == 2 && strcmp(argv[1], "amend") == 0) return amend();
    if (argc >= 3 && strcmp(argv[1], "enter") == 0) return enter_root(argc - 2, argv + 2);
    if (argc >= 3 && strcmp(argv[1], "begin") == 0) return begin_service(argc - 2, argv + 2);
    if (argc == 3 && strcmp(argv[1], "who") == 0) return print_user(argv[2]);
    if (argc == 4 && strcmp(argv[1], "get") == 0) return get_file(argv[2], argv[3]);
    if (argc == 3 && strcmp(argv[1], "put") == 0) return put_file(argv[2]);
    if (argc == 3 && strcmp(argv[1], "look") == 0) return look_at(argv[2]);
    if (argc == 2 && strcmp(argv[1], "pack") == 0) return pack();
    if (argc == 2 && strcmp(argv[1], "unpack") == 0) return unpack();
    if (argc == 2 && strcmp(argv[1], "together") == 0) return together();
    if (argc == 3 && strcmp(argv[1], "ask") == 0) return ask_service(argv[2]);
    dprintf(2, "tvsnap-init: runs inside a sandbox, or knows no such command\n");
    return 125;
}
