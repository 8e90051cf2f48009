#include "attributes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "labels.h"
#include "proc.h"

enum { IOPRIO_WHO_PROCESS = 1, MOST_THREADS = 4096 };

/* Hashes a complete /proc file, or that it is missing or unreadable; returns false then. */
static bool take_proc(struct hash *h, pid_t pid, const char *name) {
    char text[8192];
    ssize_t n = read_proc(pid, name, text, sizeof text);
    hash_number(h, (uint64_t)n);
    if (n > 0) hash_take(h, text, (size_t)n);
    return n >= 0;
}

/* Returns false if it could not be read. */
static bool take_status(struct hash *h, pid_t pid, const char *name, bool signals) {
    static const char *const lines[] = {"\nTracerPid:",   "\nUid:",    "\nGid:",    "\nCpus_allowed:", "\nMems_allowed:",
                                        "\nTHP_enabled:", "\nCapEff:", "\nCapPrm:", "\nNoNewPrivs:",   "\nSigPnd:",
                                        "\nShdPnd:",      "\nSigBlk:"};
    char text[8192];
    size_t count = sizeof lines / sizeof *lines - (signals ? 0 : 3);
    if (read_proc(pid, name, text, sizeof text) <= 0) return false;
    for (size_t i = 0; i < count; i++) {
        const char *line = strstr(text, lines[i]);
        if (line) hash_piece(h, line + 1, strcspn(line + 1, "\n"));
    }
    return true;
}

static void take_scheduling(struct hash *h, pid_t thread) {
    unsigned char scheduling[64] = {0};
    hash_number(h, (uint64_t)syscall(SYS_sched_getattr, thread, scheduling, (unsigned)sizeof scheduling, 0));
    hash_take(h, scheduling, sizeof scheduling);
    hash_number(h, (uint64_t)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread));
}

/* The attributes of security modules; `part`: a thread's part of /proc/PID, or empty. */
static void take_labels(struct hash *h, pid_t pid, const char *part) {
    static const char *const modules[] = LABEL_MODULES, *const others[] = OTHER_LABELS;
    char name[64];
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        snprintf(name, sizeof name, "%s%s" CURRENT_LABEL, part, modules[i]);
        bool labelled = take_proc(h, pid, name);
        for (size_t j = 0; labelled && j < sizeof others / sizeof *others; j++) {
            snprintf(name, sizeof name, "%s%s%s", part, modules[i], others[j]);
            take_proc(h, pid, name);
        }
    }
}

/* Hashes the kernel's state of each thread except the main one; returns false if not all could be seen. */
static bool take_threads(struct hash *h, pid_t pid) {
    char name[64], part[32];
    int count = 0;
    snprintf(name, sizeof name, "/proc/%d/task", pid);
    DIR *d = opendir(name);
    bool seen = d;
    for (struct dirent *e; seen && (e = readdir(d));) {
        pid_t thread = (pid_t)atoi(e->d_name);
        if (thread <= 0 || thread == pid) continue;
        snprintf(part, sizeof part, "task/%d/", thread);
        snprintf(name, sizeof name, "%sstatus", part);
        hash_number(h, (uint64_t)thread);
        seen = ++count <= MOST_THREADS && take_status(h, pid, name, true);
        snprintf(name, sizeof name, "%scomm", part);
        take_proc(h, pid, name);
        take_labels(h, pid, part);
        take_scheduling(h, thread);
    }
    if (d) closedir(d);
    return seen;
}

/* Without limits, and without other threads than the main one. */
static bool take_attributes(struct hash *h, pid_t pid, bool signals) {
    static const char *const files[] = {"oom_score_adj", "coredump_filter", "comm", "loginuid"};
    char group[128];
    bool seen = take_status(h, pid, "status", signals);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) take_proc(h, pid, files[i]);
    const char *value = read_proc(pid, "autogroup", group, sizeof group) > 0 ? strchr(group, ' ') : NULL;
    if (value) hash_piece(h, value, strlen(value)); /* a number precedes it */
    take_labels(h, pid, "");
    take_scheduling(h, pid);
    return seen;
}

/* Digests all of it, including all threads and pending signals; returns false if not all could be seen. */
bool kernel_attributes(pid_t pid, struct digest *found) {
    struct hash h = hash_begun();
    bool seen = take_attributes(&h, pid, true);
    take_proc(&h, pid, "limits");
    seen = take_threads(&h, pid) && seen;
    *found = hash_end(&h);
    return seen;
}

/* The same for the shell, without signals. `kept`: without limits, which a recreated shell gets anew; the shells of two
 * sandboxes with the same history have this in common. */
void shell_attributes(pid_t pid, struct digest *all, struct digest *kept) {
    struct hash h = hash_begun();
    take_attributes(&h, pid, false);
    *kept = hash_end(&h);
    take_proc(&h, pid, "limits");
    *all = hash_end(&h);
}
