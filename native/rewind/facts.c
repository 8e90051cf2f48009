#include "facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asked.h"
#include "descriptors.h"
#include "kept.h"
#include "labels.h"

/* Lines of /proc/PID/status that say what it may do, and what it does about signals. */
static const char *const STATUS[] = {
    "Umask", "Tgid", "NStgid", "Uid", "Gid", "Groups", "NSpid", "NSpgid", "NSsid", "VmLck", "VmPin",
    "Threads", "SigPnd", "ShdPnd", "SigIgn", "SigCgt", "Cap", "NoNewPrivs", "Seccomp", "Speculation",
    "Cpus_allowed:", "Mems_allowed:", "THP_enabled", "untag_mask", "x86_Thread", "CoreDumping", "FDSize",
};
static const char *const FILES[] = {
    "limits", "personality", "oom_score_adj", "coredump_filter", "timerslack_ns", "comm", "loginuid", "sessionid",
    "autogroup", "auxv",
};
static const char *const LINKS[] = {
    "cwd", "root", "exe", "ns/cgroup", "ns/ipc", "ns/mnt", "ns/net", "ns/pid", "ns/pid_for_children", "ns/time",
    "ns/time_for_children", "ns/user", "ns/uts",
};

static bool add_status(struct text *to, int pid) {
    struct text all = {0};
    bool good = add_file(&all, pid, "status") && all.data;
    for (char *line = all.data, *end; good && line && *line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        size_t length = end ? (size_t)(end - line) + 1 : strlen(line);
        for (size_t i = 0; i < sizeof STATUS / sizeof *STATUS; i++)
            if (strncmp(line, STATUS[i], strlen(STATUS[i])) == 0) good = good && add(to, line, length);
    }
    free(all.data);
    return good;
}

/* Its place among processes, its scheduling, and where the kernel takes the parts of its memory to be: parent, group,
 * session, terminal, priority, policy, code, stack, data, heap, arguments, environment. */
static bool add_stat(struct text *to, int pid) {
    static const int wanted[] = {4, 5, 6, 7, 8, 18, 19, 20, 22, 26, 27, 28, 38, 40, 41, 45, 46, 47, 48, 49, 50, 51};
    struct text all = {0};
    bool good = add_file(&all, pid, "stat") && all.data;
    char *at = good ? strrchr(all.data, ')') : NULL;
    int field = 2;
    size_t next = 0;
    for (char *word = at ? strtok(at + 1, " ") : NULL; word && next < sizeof wanted / sizeof *wanted; word = strtok(NULL, " "))
        if (++field == wanted[next]) {
            good = good && add_line(to, "%s ", word);
            next++;
        }
    free(all.data);
    return good && at;
}

/* POSIX timers are named, but not when they ring: the shell and PID 1 have none. */
static bool has_timers(int pid) {
    struct text all = {0};
    bool none = add_file(&all, pid, "timers") && !all.length;
    free(all.data);
    return !none;
}

/* What security modules keep of it. */
static bool add_labels(struct text *to, int pid) {
    static const char *const modules[] = LABEL_MODULES, *const others[] = OTHER_LABELS;
    char name[64];
    bool good = true;
    for (size_t i = 0; good && i < sizeof modules / sizeof *modules; i++) {
        snprintf(name, sizeof name, "%s" CURRENT_LABEL, modules[i]);
        size_t begun = to->length;
        good = add_file(to, pid, name) && add(to, "\n", 1);
        bool labelled = to->length - begun > 1;
        for (size_t j = 0; good && labelled && j < sizeof others / sizeof *others; j++) {
            snprintf(name, sizeof name, "%s%s", modules[i], others[j]);
            good = add(to, name, strlen(name)) && add_file(to, pid, name) && add(to, "\n", 1);
        }
    }
    return good;
}

bool add_facts(struct text *to, struct process *p, const struct user_regs_struct *at) {
    bool good = !has_timers(p->pid) && add_status(to, p->pid) && add_stat(to, p->pid);
    for (size_t i = 0; good && i < sizeof FILES / sizeof *FILES; i++)
        good = add(to, FILES[i], strlen(FILES[i])) && add_file(to, p->pid, FILES[i]) && add(to, "\n", 1);
    for (size_t i = 0; good && i < sizeof LINKS / sizeof *LINKS; i++) good = add_link(to, p->pid, LINKS[i]);
    return good && add_labels(to, p->pid) && add_descriptors(to, p->pid) && add_kept(to, p) && add_answers(to, p, at);
}
