#include "proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Returns how many processes there are, and their ids. The next call overwrites the list. */
size_t list_processes(pid_t **out) {
    static pid_t *pids;
    static size_t room;
    size_t n = 0;
    DIR *d = opendir("/proc");
    struct dirent *e;
    while (d && (e = readdir(d))) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9') continue;
        if (n == room) {
            room = room ? room * 2 : 64;
            pids = realloc(pids, room * sizeof *pids);
            if (!pids) die("memory");
        }
        pids[n++] = (pid_t)atoi(e->d_name);
    }
    if (d) closedir(d);
    *out = pids;
    return n;
}

/* Reads a small file of /proc; returns its length, or -1. */
ssize_t read_proc(pid_t pid, const char *name, char *out, size_t room) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, out, room - 1);
    close(fd);
    if (n >= 0) out[n] = 0;
    return n;
}

bool read_life(pid_t pid, struct life *l) {
    char text[1024];
    if (read_proc(pid, "stat", text, sizeof text) <= 0) return false;
    char *after = strrchr(text, ')'); /* the name may contain any other character */
    return after && sscanf(after + 1, " %c %d %d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %ld %*d %*d %llu",
                           &l->state, &l->parent, &l->group, &l->flags, &l->nice, &l->start) == 6;
}

bool has_ended(const struct life *l) { return l->state == 'Z' || l->state == 'X'; }

/* The current time by the clock of `struct life`. */
unsigned long long now_ticks(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    unsigned long long second = (unsigned long long)sysconf(_SC_CLK_TCK);
    return (unsigned long long)t.tv_sec * second + (unsigned long long)t.tv_nsec / (1000000000 / second);
}

/* Whether a process group has a member that has not ended. */
bool group_lives(pid_t group) {
    pid_t *pids;
    size_t n = list_processes(&pids);
    for (size_t i = 0; i < n; i++) {
        struct life l;
        if (read_life(pids[i], &l) && l.group == group && !has_ended(&l)) return true;
    }
    return false;
}

/* Finds the real user and group of a process. */
bool read_owner(pid_t pid, uid_t *uid, gid_t *gid) {
    char status[4096];
    char *users = read_proc(pid, "status", status, sizeof status) > 0 ? strstr(status, "\nUid:") : NULL;
    return users && sscanf(users, " Uid: %u %*u %*u %*u Gid: %u", uid, gid) == 2;
}

/* Whether any process has this id. */
bool number_is_taken(pid_t pid) { return kill(pid, 0) == 0; }

/* Returns a pidfd; -1, with errno, if no process has this id. */
int open_process(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

bool send_signal(int process, int signal) { return syscall(SYS_pidfd_send_signal, process, signal, NULL, 0) == 0; }

/* Sends a signal to a child that was not reaped, so that its id cannot have been reused. */
bool signal_child(pid_t child, int signal) {
    int process = open_process(child);
    bool sent = process >= 0 && send_signal(process, signal);
    if (process >= 0) close(process);
    return sent;
}
