/* mktemp of GNU coreutils 9.1 draws its first ten letters from an address and a clock, and all others by getrandom.
 * So it is told that all names which may have such letters exist already. One time in 23 it rejects the first ten
 * letters and draws ten others at once: until the first name that counts, all groups of ten are the same, so that
 * this makes no difference. */
#include "preload.h"

#include <errno.h>
#include <sys/auxv.h>

enum { TAKEN = 11, SAME = 64 };

static int asked, answered;

static bool is_mktemp(void) {
    static int known; /* 0: not checked yet */
    if (!known) {
        const char *path = (const char *)getauxval(AT_EXECFN), *name = path ? path : "";
        for (; path && *path; path++)
            if (*path == '/') name = path + 1;
        known = equal_texts(name, "mktemp") ? 1 : -1;
    }
    return known == 1;
}

bool pretends_taken(void) {
    if (asked >= TAKEN || !seed_is_set() || !is_mktemp()) return false;
    asked++;
    *__errno_location() = EEXIST;
    return true;
}

bool draws_the_same(void) { return asked < TAKEN && is_mktemp() && answered++ < SAME; }
