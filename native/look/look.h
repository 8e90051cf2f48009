/* Looks at a sandbox from outside, within the tool's own process, and remembers what was seen: each observation is told
 * only in what it differs from the last one.
 *
 * A library for Python (sandboxes/processes/look.py). What runs in a sandbox may make any files, and do so while they are
 * looked at: no link is followed, nothing but directories is opened, and there are bounds on levels, memory and time.
 * One thread at a time for each `struct files`.
 */
#ifndef TVSNAP_LOOK_LOOK_H
#define TVSNAP_LOOK_LOOK_H

#include <stddef.h>

#define EXPORTED __attribute__((visibility("default"))) /* all else is hidden from the program that loads it */

struct files;

/* What came of a look: after any but the first nothing is remembered, and the next one tells all. */
enum look_result {
    LOOK_DONE,
    LOOK_NOT_ALL,  /* something could not be looked at; `why` tells */
    LOOK_TOO_LONG, /* it took more time than it had */
    LOOK_TOO_MUCH, /* of files, more than are remembered: `tvsnap-init walk list` tells of any number; else more than was asked for */
};

/* Memory that look_told_free frees. */
struct told {
    char *changed; /* of files: a record of each that is new or another, as `tvsnap-init walk list --home` prints it */
    size_t changed_length;
    char *gone; /* of files: the path of each that is no more, with what ends it */
    size_t gone_length;
    int error; /* of processes: its number */
    char why[512];
};

EXPORTED struct files *look_files_new(void);
EXPORTED int look_files(struct files *files, int directory, double seconds, struct told *told);
EXPORTED int look_holds(const int *pids, const int *kinds, int count, double seconds, struct told *told); /* see holds.h */
EXPORTED int look_ran(const int *pids, int count, int most, struct told *told);
EXPORTED int look_threads(int pid, struct told *told);
EXPORTED int look_shell(int pid, int with_signals, struct told *told);
EXPORTED int look_descriptors(int pid, int most, struct told *told);
EXPORTED void look_told_free(struct told *told);
EXPORTED void look_files_free(struct files *files);

#endif
