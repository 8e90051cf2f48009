#include "attributes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hash.h"
#include "proc.h"

enum { IOPRIO_WHO_PROCESS = 1, MOST_THREADS = 4096 };

static uint64_t mix_number(uint64_t hash, uint64_t number) { return mix(hash, &number, sizeof number); }

/* Takes a file of /proc, whole; one that is not there or not for us says so too. */
static uint64_t mix_proc(uint64_t hash, pid_t pid, const char *name) {
    char text[8192];
    ssize_t n = read_proc(pid, name, text, sizeof text);
    hash = mix_number(hash, (uint64_t)n);
    return n > 0 ? mix(hash, text, (size_t)n) : hash;
}

/* False if it could not be read. */
static bool mix_status(uint64_t *hash, pid_t pid, const char *name, bool signals) {
    static const char *const lines[] = {"\nTracerPid:",   "\nUid:",    "\nGid:",    "\nCpus_allowed:", "\nMems_allowed:",
                                        "\nTHP_enabled:", "\nCapEff:", "\nCapPrm:", "\nNoNewPrivs:",   "\nSigPnd:",
                                        "\nShdPnd:",      "\nSigBlk:"};
    char text[8192];
    size_t count = sizeof lines / sizeof *lines - (signals ? 0 : 3);
    if (read_proc(pid, name, text, sizeof text) <= 0) return false;
    for (size_t i = 0; i < count; i++) {
        const char *line = strstr(text, lines[i]);
        if (line) *hash = mix(*hash, line + 1, strcspn(line + 1, "\n"));
    }
    return true;
}

static uint64_t mix_scheduling(uint64_t hash, pid_t thread) {
    unsigned char scheduling[64] = {0};
    hash = mix_number(hash, (uint64_t)syscall(SYS_sched_getattr, thread, scheduling, (unsigned)sizeof scheduling, 0));
    hash = mix(hash, scheduling, sizeof scheduling);
    return mix_number(hash, (uint64_t)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread));
}

/* What the kernel keeps of each thread but the first; false if not all could be seen. */
static bool mix_threads(uint64_t *hash, pid_t pid) {
    char name[64];
    int count = 0;
    snprintf(name, sizeof name, "/proc/%d/task", pid);
    DIR *d = opendir(name);
    bool seen = d;
    for (struct dirent *e; seen && (e = readdir(d));) {
        pid_t thread = (pid_t)atoi(e->d_name);
        if (thread <= 0 || thread == pid) continue;
        snprintf(name, sizeof name, "task/%d/status", thread);
        seen = ++count <= MOST_THREADS && mix_status(hash, pid, name, true);
        snprintf(name, sizeof name, "task/%d/comm", thread);
        *hash = mix_scheduling(mix_proc(mix_number(*hash, (uint64_t)thread), pid, name), thread);
    }
    if (d) closedir(d);
    return seen;
}

/* A hash of it, which two sandboxes' shells of the same history have in common; false if not all could be seen. */
bool kernel_attributes(pid_t pid, enum attributes which, uint64_t *hash) {
    static const char *const files[] = {"oom_score_adj", "coredump_filter", "comm", "loginuid"};
    char group[128];
    uint64_t sum = HASH_START;
    bool seen = mix_status(&sum, pid, "status", which == ALL_OF_OTHERS);
    if (which != KEPT_BY_SHELLS) sum = mix_proc(sum, pid, "limits");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) sum = mix_proc(sum, pid, files[i]);
    const char *value = read_proc(pid, "autogroup", group, sizeof group) > 0 ? strchr(group, ' ') : NULL;
    if (value) sum = mix(sum, value, strlen(value)); /* what is before it is a number */
    sum = mix_scheduling(sum, pid);
    if (which == ALL_OF_OTHERS) seen = mix_threads(&sum, pid) && seen;
    *hash = sum;
    return seen;
}
