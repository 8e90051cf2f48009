#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "init/holds.h"
#include "limit.h"
#include "look.h"
#include "memory.h"
#include "result.h"

enum { LONGEST_ID = 16 };

static bool add_holds(struct text *to, struct holding *h, int pid, enum holder kind) {
    struct digest held, locked;
    char line[LONGEST_ID + 2 * DIGEST_TEXT + 2];
    bool seen = find_holds(h, pid, kind, &held, &locked);
    size_t n = (size_t)snprintf(line, LONGEST_ID, "%d ", pid);
    if (seen) write_digest(line + n, &held);
    else line[n] = '?';
    n += seen ? DIGEST_TEXT : 1;
    line[n++] = ' ';
    write_digest(line + n, &locked);
    n += DIGEST_TEXT;
    line[n++] = '\n';
    return add_text(to, line, n);
}

/* Inspects what processes hold, in at most `seconds` of processor time: a line `PID HOLDS LOCKS` for each. */
int look_holds(const int *pids, const int *kinds, int count, double seconds, struct told *told) {
    struct text found = {0};
    struct holding *h = new_holding(limit_after(seconds));
    int error = h ? 0 : ENOMEM;
    for (int i = 0; i < count && !error; i++) {
        if (!add_holds(&found, h, pids[i], (enum holder)kinds[i])) error = ENOMEM;
        else if (is_late(h)) error = ETIME;
    }
    free(h);
    return tell(told, &found, error);
}
