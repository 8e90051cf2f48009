/* PID 1 of a namespace, in which a process gets the number of one from before: whom does the end of an action meet?
 *
 * Prints `same` if the number was given again, and of three processes whether they were ended: the one from before the
 * action, the action's own, and the action's that has the number of one that was there before.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine.h"
#include "guest.h"
#include "processes.h"

static pid_t child(void) {
    pid_t pid = fork();
    if (pid < 0) die("fork");
    while (pid == 0) pause();
    return pid;
}

static const char *fate(pid_t pid) {
    int status;
    usleep(50000);
    return waitpid(pid, &status, WNOHANG) == pid && WIFSIGNALED(status) ? "ended" : "lives";
}

int main(void) {
    if (getpid() != 1) return 2; /* it ends whatever it takes for its own */
    pid_t server = child(), before = child();
    usleep(50000);
    remember_processes();
    usleep(50000); /* times of starts are told to a hundredth of a second */
    kill(before, SIGKILL);
    if (waitpid(before, NULL, 0) != before || !number_processes(before - 1)) die("number");
    pid_t again = child(), own = child();
    printf("%s ", again == before ? "same" : "other");
    fflush(stdout);
    kill_new();
    printf("%s ", fate(server));
    printf("%s ", fate(own));
    printf("%s\n", fate(again));
    return fflush(stdout) != 0;
}
