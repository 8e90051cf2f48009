#include "child.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "signals.h"

/* Makes `fd` the descriptor `wanted`, open across exec. */
void use_fd(int fd, int wanted) {
    if (fd == wanted)
        fcntl(fd, F_SETFD, 0);
    else if (dup2(fd, wanted) < 0)
        die("dup2");
}

/* Resets what it must not inherit from PID 1. */
void become_ordinary(void) {
    int oom = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (oom >= 0) {
        if (write(oom, "300", 3) != 3) die("oom_score_adj"); /* to be killed before PID 1, whatever its size */
        close(oom);
    }
    reset_signals();
}

/* Executes a file; if the kernel does not know its format, it is a script for the shell, as in a shell. */
static void execute_file(const char *path, char **argv) {
    execv(path, argv);
    if (errno != ENOEXEC) return;
    size_t count = 0;
    while (argv[count]) count++;
    char **script = calloc(count + 2, sizeof *script);
    char *text = strdup(path);
    if (!script || !text) die("memory");
    script[0] = argv[0];
    script[1] = text;
    memcpy(script + 2, argv + 1, count * sizeof *script); /* including the terminating NULL */
    execv("/bin/sh", script);
}

/* Executes argv[0], found by PATH, like glibc's execvp; returns, with errno, on failure. */
void execute(char **argv) {
    char path[PATH_MAX + NAME_MAX + 2];
    const char *name = argv[0], *directories = getenv("PATH");
    bool refused = false;
    if (!*name) {
        errno = ENOENT;
        return;
    }
    if (strchr(name, '/')) {
        execute_file(name, argv);
        return;
    }
    if (strlen(name) > NAME_MAX) {
        errno = ENAMETOOLONG;
        return;
    }
    if (!directories) directories = "/bin:/usr/bin";
    for (const char *end;; directories = end + 1) {
        end = directories + strcspn(directories, ":");
        size_t length = (size_t)(end - directories);
        if (length < PATH_MAX) {
            memcpy(path, directories, length);
            if (length) path[length++] = '/';
            strcpy(path + length, name);
            execute_file(path, argv);
            if (errno == EACCES) refused = true;
            else if (errno != ENOENT && errno != ESTALE && errno != ENOTDIR && errno != ENODEV && errno != ETIMEDOUT) return;
        }
        if (!*end) break;
    }
    if (refused) errno = EACCES;
}
