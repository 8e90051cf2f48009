#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "error_text.h"
#include "init/entry.h"
#include "init/holds.h"
#include "look.h"
#include "memory.h"

/* Looks at what processes hold, for so many seconds of processor time at most: a line `PID HOLDS LOCKS` for each. */
int look_holds(const int *pids, const int *kinds, int count, double seconds, struct told *told) {
    struct timespec now;
    struct text lines = {0};
    *told = (struct told){0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    struct holding *h = new_holding(nanoseconds(now) + (int64_t)(seconds * 1e9));
    enum look_result result = h ? LOOK_DONE : LOOK_NOT_ALL;
    for (int i = 0; i < count && result == LOOK_DONE; i++) {
        struct digest held, locked;
        char line[32 + 2 * DIGEST_TEXT];
        bool seen = find_holds(h, pids[i], (enum holder)kinds[i], &held, &locked);
        size_t n = (size_t)snprintf(line, 32, "%d ", pids[i]);
        if (seen) write_digest(line + n, &held), n += DIGEST_TEXT;
        else line[n++] = '?';
        line[n++] = ' ';
        write_digest(line + n, &locked);
        n += DIGEST_TEXT;
        line[n++] = '\n';
        if (is_late(h)) result = LOOK_TOO_LONG;
        else if (!add_text(&lines, line, n)) result = LOOK_NOT_ALL;
    }
    free(h);
    if (result == LOOK_DONE) {
        told->changed = lines.data;
        told->changed_length = lines.length;
    } else {
        free(lines.data);
        snprintf(told->why, sizeof told->why, "%s", result == LOOK_NOT_ALL ? error_text(ENOMEM) : "too much time");
    }
    return result;
}
