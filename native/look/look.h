/* Inspects a sandbox from outside, within tvsnap's own process, and remembers what was seen, so that each look returns
 * only the differences from the last one.
 *
 * A library for Python (sandboxes/looks/native_look.py). Programs in a sandbox may create any files, and do so during a look:
 * no link is followed, only directories are opened, and levels, memory and time are limited. One thread at a time for
 * each `struct files`.
 */
#ifndef TVSNAP_LOOK_LOOK_H
#define TVSNAP_LOOK_LOOK_H

#include <stddef.h>

#define EXPORTED __attribute__((visibility("default"))) /* all other symbols are hidden */

struct files;

/* The result of a look: after any other than the first nothing is remembered, and the next look returns everything. */
enum look_result {
    LOOK_DONE,
    LOOK_NOT_ALL,  /* something could not be inspected; see `why` */
    LOOK_TOO_LONG, /* it exceeded its time limit */
    LOOK_TOO_MUCH, /* more files than are remembered (`tvsnap-init walk list` has no limit); else more than was asked for */
};

/* Memory that look_told_free frees. */
struct told {
    char *changed; /* of files: a record of each new or changed one, in the format of `tvsnap-init walk list --home` */
    size_t changed_length;
    char *gone; /* of files: the path of each deleted one, with a zero byte */
    size_t gone_length;
    int error; /* of processes: the error number */
    char why[512];
};

EXPORTED struct files *look_files_new(void);
EXPORTED struct files *look_files_copy(const struct files *files);
EXPORTED int look_files(struct files *files, int directory, double seconds, struct told *told);
EXPORTED int look_seal(int directory, double seconds, struct told *told);
EXPORTED int look_contents(int root, const char *paths, int count, size_t most, double seconds, struct told *told);
EXPORTED int look_holds(const int *pids, const int *kinds, int count, double seconds, struct told *told); /* see holds.h */
EXPORTED int look_ran(const int *pids, int count, int most, struct told *told);
EXPORTED int look_threads(int pid, struct told *told);
EXPORTED int look_shell(int pid, struct told *told);
EXPORTED int look_descriptors(int pid, int most, struct told *told);
EXPORTED void look_told_free(struct told *told);
EXPORTED void look_files_free(struct files *files);

#endif
