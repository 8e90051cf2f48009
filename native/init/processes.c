/* The sandbox's processes: which ones the action started, whether they sleep, and how they are ended. */
#include "guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns how many processes there are, and their ids. The list is overwritten by the next call. */
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

/* Whether a process group has a member that has not ended. */
bool group_lives(pid_t group) {
    pid_t *pids;
    size_t n = list_processes(&pids);
    for (size_t i = 0; i < n; i++) {
        char stat[512], state;
        int its_group;
        char *end = read_proc(pids[i], "stat", stat, sizeof stat) > 0 ? strrchr(stat, ')') : NULL;
        if (end && sscanf(end + 1, " %c %*d %d", &state, &its_group) == 2 && its_group == group && state != 'Z' &&
            state != 'X')
            return true;
    }
    return false;
}

void remember_processes(void) {
    pid_t *pids;
    size_t n = list_processes(&pids);
    action.before = realloc(action.before, n * sizeof *pids + 1);
    if (!action.before) die("memory");
    memcpy(action.before, pids, n * sizeof *pids);
    action.before_count = n;
}

static bool is_new(pid_t pid) {
    if (pid == 1 || pid == guest.shell) return false;
    if (pid == action.child) return true; /* also if its number was another's at the start */
    for (size_t i = 0; i < action.before_count; i++)
        if (action.before[i] == pid) return false;
    return true;
}

static pid_t parent_of(pid_t pid) {
    char stat[512];
    ssize_t got = read_proc(pid, "stat", stat, sizeof stat);
    char *end = got > 0 ? strrchr(stat, ')') : NULL;
    int parent = 0;
    if (end) sscanf(end + 1, " %*c %d", &parent);
    return parent;
}

/* Whether the action started it, and not a server or a job from before, which is to go on. */
static bool is_ours(pid_t pid) {
    enum { MAX_GENERATIONS = 64 };
    for (int i = 0; i < MAX_GENERATIONS && is_new(pid); i++) {
        pid_t parent = parent_of(pid);
        if (parent <= 1 || parent == guest.shell) return true;
        if (!is_new(parent)) return false;
        pid = parent;
    }
    return is_new(pid);
}

size_t signal_new(int signal) {
    pid_t *pids;
    size_t n = list_processes(&pids), hit = 0;
    for (size_t i = 0; i < n; i++)
        if (is_ours(pids[i])) {
            char stat[512];
            ssize_t got = read_proc(pids[i], "stat", stat, sizeof stat);
            char *end = got > 0 ? strrchr(stat, ')') : NULL;
            if (!end || end[2] == 'Z') continue;
            if (kill(pids[i], signal) == 0) hit++;
        }
    return hit;
}

/* Ends every process that the action started. They are stopped first: a fork bomb cannot outrun that. */
void kill_new(void) {
    size_t last = 0;
    for (int round = 0; round < 20; round++) {
        size_t n = signal_new(SIGSTOP);
        if (n == last) break;
        last = n;
    }
    for (int round = 0; round < 200 && signal_new(SIGKILL); round++) usleep(500); /* until they are gone */
}

/* Nanoseconds of processor time that the action's processes used so far, all of them asleep; else 0. */
uint64_t sleeping_time(void) {
    pid_t *pids;
    size_t n = list_processes(&pids);
    uint64_t sum = 1;
    for (size_t i = 0; i < n; i++) {
        if (pids[i] == 1 || (pids[i] != guest.shell && !is_new(pids[i]))) continue;
        char text[512];
        if (read_proc(pids[i], "stat", text, sizeof text) <= 0) return 0;
        char *end = strrchr(text, ')');
        if (!end || (end[2] != 'S' && end[2] != 'T' && end[2] != 't')) return 0;
        if (read_proc(pids[i], "schedstat", text, sizeof text) <= 0) return 0;
        sum = sum * 31 + (uint64_t)pids[i] + strtoull(text, NULL, 10);
    }
    return sum;
}
