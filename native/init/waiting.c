#include "waiting.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest.h"
#include "proc.h"
#include "terminal_state.h"

enum { MAX_LOOKS = 10000 }; /* descriptors inspected per request: about 40 ms */

/* Takes another real user and group; as the effective ones stay root's, we keep our rights. */
static bool go_by(uid_t uid, gid_t gid) {
    return setresgid(gid, (gid_t)-1, (gid_t)-1) == 0 && setresuid(uid, (uid_t)-1, (uid_t)-1) == 0;
}

static bool go_by_those_of(pid_t pid) {
    uid_t uid;
    gid_t gid;
    return read_owner(pid, &uid, &gid) && go_by(uid, gid);
}

/* Whether data waits at a descriptor of a process, or that is unknown. */
static bool waits_behind(int process, int number) {
    struct stat about;
    int unread;
    struct pollfd its = {.fd = (int)syscall(SYS_pidfd_getfd, process, number, 0), .events = POLLIN};
    if (its.fd < 0) return true;
    bool waits = fstat(its.fd, &about) != 0;
    if (!waits && S_ISSOCK(about.st_mode)) waits = poll(&its, 1, 0) < 0 || its.revents & (POLLIN | POLLERR);
    /* Queues of inotify, timers, eventfds, epolls; and what was typed at a terminal. */
    if (!waits && (!(about.st_mode & S_IFMT) || is_terminal(&about))) waits = poll(&its, 1, 0) < 0 || its.revents & POLLIN;
    if (!waits && S_ISFIFO(about.st_mode)) waits = ioctl(its.fd, FIONREAD, &unread) != 0 || unread > 0;
    close(its.fd);
    return waits;
}

/* Checks the descriptors of a process with the given numbers, or all of them. */
static bool process_waits(pid_t pid, const char *numbers, int *looks) {
    char name[64], *end;
    int process = open_process(pid);
    bool waits = process < 0 || !go_by_those_of(pid);
    if (numbers) {
        for (long number; !waits && (number = strtol(numbers, &end, 10), end != numbers); numbers = end)
            waits = --*looks < 0 || waits_behind(process, (int)number);
    } else {
        snprintf(name, sizeof name, "/proc/%d/fd", pid);
        DIR *d = opendir(name);
        struct dirent *e;
        waits = waits || !d;
        while (!waits && (e = readdir(d)))
            if (e->d_name[0] != '.') waits = --*looks < 0 || waits_behind(process, atoi(e->d_name));
        if (d) closedir(d);
    }
    if (!go_by(geteuid(), getegid())) die("setresuid");
    if (process >= 0) close(process);
    return waits;
}

/* Whether data waits at these descriptors of the shell, or at any of these processes', or that is unknown. Both
 * fields are decimal numbers separated by blanks. */
bool anything_waits(struct field shell_files, struct field processes) {
    int looks = MAX_LOOKS;
    char *files = text_of(shell_files), *pids = text_of(processes), *at = pids, *end;
    bool waits = *files && (!guest.shell || process_waits(guest.shell, files, &looks));
    for (long pid; !waits && (pid = strtol(at, &end, 10), end != at); at = end)
        waits = process_waits((pid_t)pid, NULL, &looks);
    free(files);
    free(pids);
    return waits;
}
