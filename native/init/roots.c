#include "roots.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "files.h"
#include "protocol.h"
#include "trees.h"
#include "users.h"
#include "walk.h"

enum { CANNOT_BECOME = 126, CANNOT_EXECUTE = 127 }; /* as of a shell */

void bind_directories(char *pairs) {
    for (char *from; (from = strsep(&pairs, "\n"));) {
        char *at = strsep(&pairs, "\n");
        if (!at || mount(from, at, NULL, MS_BIND | MS_REC, NULL)) die(at ? at : "TVSNAP_BINDS");
    }
}

static int complain(const char *what, int status) {
    dprintf(2, "%s: %s\n", what, error_text(errno));
    return status;
}

static bool is_tool(char **program) { return strcmp(program[0], INIT_PATH) == 0; }

/* Returns the exit status if a program could not be run: for our own tools, the errno. */
static int not_entered(const char *what, char **program) {
    return is_tool(program) ? errno : complain(what, CANNOT_BECOME);
}

/* One of PID 1's own tools for files and folders, which the root has no program for. */
static int own_tool(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[0], "get") == 0) return get_file(argv[1], argv[2]);
    if (argc == 2 && strcmp(argv[0], "put") == 0) return put_file(argv[1]);
    if (argc == 2 && strcmp(argv[0], "look") == 0) return look_at(argv[1]);
    if (argc == 1 && strcmp(argv[0], "pack") == 0) return pack();
    if (argc == 1 && strcmp(argv[0], "unpack") == 0) return unpack();
    if (argc >= 3 && strcmp(argv[0], "walk") == 0) return walk_main(argv + 1);
    return CANNOT_EXECUTE;
}

/* ROOT USER CWD VARIABLES (NAME=VALUE)... PROGRAM ARGUMENT...
 *
 * Becomes the program, found by PATH, with that root, user and directory, and with those environment variables only.
 * Links in ROOT cannot lead out of it, and USER is looked up in ROOT. INIT_PATH as the program stands for one of our
 * own tools. */
int enter_root(int argc, char **argv) {
    struct user user;
    int count = argc > 4 ? atoi(argv[3]) : -1;
    if (count < 0 || argc < 5 + count) return CANNOT_EXECUTE;
    char **program = argv + 4 + count;
    bool own_root = strcmp(argv[0], "/") != 0; /* for "/", the right to change it is not needed */
    if ((own_root && chroot(argv[0])) || chdir("/")) return not_entered(argv[0], program);
    if (!find_user(argv[1], &user)) {
        errno = EINVAL;
        return not_entered("no such user", program);
    }
    clearenv();
    for (int i = 0; i < count; i++) putenv(argv[4 + i]);
    set_variables(&user);
    become_ordinary();
    if (!become(&user)) return not_entered(user.name, program);
    if (chdir(argv[2])) return not_entered(argv[2], program);
    if (is_tool(program)) return own_tool(argc - 5 - count, program + 1);
    execute(program);
    return complain(program[0], CANNOT_EXECUTE);
}

/* Writes how a service ended: its exit status, or 128 plus the number of the signal. */
static void write_end(const char *path, int status) {
    char text[16];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int length = snprintf(text, sizeof text, "%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    if (fd >= 0) write_all(fd, text, (size_t)length);
}

/* LOG END and the arguments of enter_root: runs the program in the background, in its own session, with its output
 * in LOG. When it has ended, END has its status. A process that waits for it stays meanwhile. */
int begin_service(int argc, char **argv) {
    if (argc < 3) return CANNOT_EXECUTE;
    int log = open(argv[0], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (log < 0 || null < 0) return complain(argv[0], 1);
    pid_t waits = fork();
    if (waits < 0) return complain("fork", 1);
    if (waits > 0) return 0;
    setsid();
    use_fd(null, 0);
    use_fd(log, 1);
    use_fd(log, 2);
    pid_t runs = fork();
    if (runs == 0) {
        setsid();
        _exit(enter_root(argc - 2, argv + 2));
    }
    int status = 0x7f00;
    while (runs > 0 && waitpid(runs, &status, 0) < 0 && errno == EINTR);
    write_end(argv[1], status);
    _exit(0);
}
