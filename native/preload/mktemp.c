/* mktemp of GNU coreutils 9.1 draws its first ten letters from an address and a clock, and all others by
 * getrandom. So the names that may have such letters are taken, as it is told. One time in 23 it finds the first ten of no
 * use and has ten others at once: until the first name that counts, all tens are the same, so that this does not show. */
#include "preload.h"

#include <errno.h>
#include <sys/auxv.h>

enum { TAKEN = 11, SAME = 64 };

static int asked, answered;

static bool is_mktemp(void) {
    static int known; /* 0: not yet */
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
