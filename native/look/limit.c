#include "limit.h"

#include <time.h>

#include "init/entry.h"

static int64_t used(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return nanoseconds(t);
}

int64_t limit_after(double seconds) { return used() + (int64_t)(seconds * 1e9); }

bool is_over(int64_t limit) { return used() > limit; }
