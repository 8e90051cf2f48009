#include "attributes.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hash.h"
#include "proc.h"

enum { IOPRIO_WHO_PROCESS = 1 };

static uint64_t mix_number(uint64_t hash, uint64_t number) { return mix(hash, &number, sizeof number); }

/* Takes a file of /proc, whole; one that is not there or not for us says so too. */
static uint64_t mix_proc(uint64_t hash, pid_t pid, const char *name) {
    char text[8192];
    ssize_t n = read_proc(pid, name, text, sizeof text);
    hash = mix_number(hash, (uint64_t)n);
    return n > 0 ? mix(hash, text, (size_t)n) : hash;
}

/* False if it could not be read. */
static bool mix_status(uint64_t *hash, pid_t pid, bool signals) {
    static const char *const lines[] = {"\nTracerPid:",   "\nUid:",    "\nGid:",    "\nCpus_allowed:", "\nMems_allowed:",
                                        "\nTHP_enabled:", "\nCapEff:", "\nCapPrm:", "\nNoNewPrivs:",   "\nSigPnd:",
                                        "\nShdPnd:"};
    char text[8192];
    size_t count = sizeof lines / sizeof *lines - (signals ? 0 : 2);
    if (read_proc(pid, "status", text, sizeof text) <= 0) return false;
    for (size_t i = 0; i < count; i++) {
        const char *line = strstr(text, lines[i]);
        if (line) *hash = mix(*hash, line + 1, strcspn(line + 1, "\n"));
    }
    return true;
}

/* A hash of it, which two sandboxes' shells of the same history have in common; false if not all could be seen. */
bool kernel_attributes(pid_t pid, enum attributes which, uint64_t *hash) {
    static const char *const files[] = {"oom_score_adj", "coredump_filter", "comm", "loginuid"};
    unsigned char scheduling[64] = {0};
    char group[128];
    uint64_t sum = HASH_START;
    bool seen = mix_status(&sum, pid, which == ALL_OF_OTHERS);
    if (which != KEPT_BY_SHELLS) sum = mix_proc(sum, pid, "limits");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) sum = mix_proc(sum, pid, files[i]);
    const char *value = read_proc(pid, "autogroup", group, sizeof group) > 0 ? strchr(group, ' ') : NULL;
    if (value) sum = mix(sum, value, strlen(value)); /* what is before it is a number */
    sum = mix_number(sum, (uint64_t)syscall(SYS_sched_getattr, pid, scheduling, (unsigned)sizeof scheduling, 0));
    sum = mix(sum, scheduling, sizeof scheduling);
    *hash = mix_number(sum, (uint64_t)syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, pid));
    return seen;
}
