#include "facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asked.h"
#include "descriptors.h"
#include "kept.h"
#include "labels.h"

static const char *const FILES[] = {
    "limits", "personality", "oom_score_adj", "coredump_filter", "timerslack_ns", "comm", "loginuid", "sessionid",
    "autogroup", "auxv",
};
static const char *const PLACES[] = {"cwd", "root", "exe"};
static const char *const NAMESPACES[] = { /* their names contain their numbers */
    "ns/cgroup", "ns/ipc", "ns/mnt", "ns/net", "ns/pid", "ns/pid_for_children", "ns/time", "ns/time_for_children",
    "ns/user", "ns/uts",
};

/* Adds its relations to other processes, its scheduling, and where the kernel assumes the parts of its memory:
 * parent, group, session, terminal, priority, policy, code, stack, data, heap, arguments, environment. Also finds
 * which signals it ignores. */
static bool add_stat(struct text *to, struct process *p) {
    enum { SIGNALS_IGNORED = 33 };
    static const int wanted[] = {4, 5, 6, 7, 8, 18, 19, 20, 22, 26, 27, 28, 38, 40, 41, 45, 46, 47, 48, 49, 50, 51};
    struct text all = {0};
    bool good = add_file(&all, p->directory, "stat") && all.data, found = false;
    char *at = good ? strrchr(all.data, ')') : NULL, *rest = NULL;
    int field = 2;
    size_t next = 0;
    for (char *word = at ? strtok_r(at + 1, " ", &rest) : NULL; word; word = strtok_r(NULL, " ", &rest)) {
        if (++field == SIGNALS_IGNORED) {
            p->ignores = strtoull(word, NULL, 10);
            found = true;
        }
        if (next == sizeof wanted / sizeof *wanted || field != wanted[next]) continue;
        good = good && add(to, word, strlen(word)) && add(to, " ", 1);
        next++;
    }
    free(all.data);
    return good && found;
}

/* /proc lists POSIX timers, but not when they expire: the shell and PID 1 have none. */
static bool has_timers(const struct process *p) {
    struct text all = {0};
    bool none = add_file(&all, p->directory, "timers") && !all.length;
    free(all.data);
    return !none;
}

/* The attributes of security modules. */
static bool add_labels(struct text *to, const struct process *p) {
    static const char *const modules[] = LABEL_MODULES, *const others[] = OTHER_LABELS;
    char name[64];
    bool good = true;
    for (size_t i = 0; good && i < sizeof modules / sizeof *modules; i++) {
        snprintf(name, sizeof name, "%s" CURRENT_LABEL, modules[i]);
        size_t begun = to->length;
        good = add_file(to, p->directory, name) && add(to, "\n", 1);
        bool labelled = to->length - begun > 1;
        for (size_t j = 0; good && labelled && j < sizeof others / sizeof *others; j++) {
            snprintf(name, sizeof name, "%s%s", modules[i], others[j]);
            good = add(to, name, strlen(name)) && add_file(to, p->directory, name) && add(to, "\n", 1);
        }
    }
    return good;
}

bool add_facts(struct text *to, struct process *p, const struct user_regs_struct *at, uint64_t *heap_end) {
    bool good = !has_timers(p) && add_stat(to, p);
    for (size_t i = 0; good && i < sizeof FILES / sizeof *FILES; i++)
        good = add(to, FILES[i], strlen(FILES[i])) && add_file(to, p->directory, FILES[i]) && add(to, "\n", 1);
    for (size_t i = 0; good && i < sizeof PLACES / sizeof *PLACES; i++) good = add_place(to, p, PLACES[i]);
    for (size_t i = 0; good && i < sizeof NAMESPACES / sizeof *NAMESPACES; i++) good = add_link(to, p, NAMESPACES[i]);
    return good && add_labels(to, p) && add_descriptors(to, p) && add_kept(to, p) && add_answers(to, p, at, heap_end);
}
