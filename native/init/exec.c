#include "exec.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "action.h"
#include "child.h"
#include "connections.h"
#include "processes.h"

/* cwd: "" for the image's, "." for the shell's. */
void start_exec(int client, const struct request *r) {
    const struct field *f = r->fields;
    int out[2], in[2];
    struct user user = guest.user;
    char *wanted = text_of(f[2]);
    bool known = !*wanted || find_user(wanted, &user);
    free(wanted);
    if (!known) {
        answer_text(client, ANSWER_NO_USER, "no such user in the image");
        return;
    }
    if (pipe2(out, O_CLOEXEC)) {
        answer_text(client, ANSWER_ERROR, "pipe: %s", error_text(errno));
        return;
    }
    if (pipe2(in, O_CLOEXEC)) {
        answer_text(client, ANSWER_ERROR, "pipe: %s", error_text(errno));
        close(out[0]), close(out[1]);
        return;
    }
    begin_action(EXEC, client, number_of(f[0], MAX_TIME_US), (size_t)number_of(f[1], MAX_OUTPUT));
    remember_processes();
    pid_t pid = fork();
    if (pid < 0) {
        close(out[0]), close(out[1]), close(in[0]), close(in[1]);
        refuse_action("fork", errno);
        return;
    }
    if (pid == 0) {
        setsid();
        char *cwd = text_of(f[3]), link[64];
        snprintf(link, sizeof link, "/proc/%d/cwd", guest.shell);
        bool here = strcmp(cwd, ".") == 0;
        bool ready = guest.mode != SHELL_STARTING && guest.mode != SHELL_GONE;
        const char *where = !*cwd || (here && !ready) ? guest.cwd : here ? link : cwd;
        char **argv = calloc((size_t)r->arguments + 1, sizeof *argv);
        if (!argv) die("memory");
        int at = EXECUTE_FIXED_FIELDS;
        for (int i = 0; i < r->arguments; i++) argv[i] = text_of(f[at++]);
        environ = guest.environment;
        set_variables(&user);
        for (; at + 1 < r->count; at += 2) setenv(text_of(f[at]), text_of(f[at + 1]), 1);
        int no_input = f[4].length ? in[0] : open("/dev/null", O_RDONLY | O_CLOEXEC);
        use_fd(out[1], 1);
        dup2(1, 2);
        if (no_input < 0) close(0);
        else use_fd(no_input, 0);
        become_ordinary();
        if (!become(&user)) {
            dprintf(2, "cannot become user %s: %s\n", user.name, error_text(errno));
            _exit(126);
        }
        if (chdir(where) && where != guest.cwd) {
            dprintf(2, "bash: cd: %s: %s\n", where, error_text(errno));
            _exit(1);
        }
        if (strcmp(argv[0], INIT_PATH) == 0) execv("/proc/self/exe", argv); /* whatever INIT_PATH is by now */
        else execute(argv);
        dprintf(2, "%s: %s\n", argv[0], error_text(errno));
        _exit(127);
    }
    close(out[1]);
    close(in[0]);
    set_nonblocking(out[0]);
    set_nonblocking(in[1]);
    action.child = pid;
    action.output = out[0];
    action.input = in[1];
    if (f[4].length) append(&action.input_data, f[4].data, f[4].length);
    action.input_at = 0;
}

/* Writes what the child accepts without waiting; closes its stdin at the end. */
void feed_input(void) {
    while (action.input >= 0 && action.input_at < action.input_data.length) {
        struct buffer *b = &action.input_data;
        ssize_t n = write(action.input, b->data + action.input_at, b->length - action.input_at);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) break;
        action.input_at += (size_t)n;
    }
    if (action.input >= 0) close(action.input);
    action.input = -1;
    release(&action.input_data);
}
