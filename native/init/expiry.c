#include "expiry.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proc.h"

enum { TRIES = 5, BRIEFLY_NS = 20000, LONGEST_NS = 100000 }; /* for which a reading may take */
enum { GRAIN_NS = 20000000 };    /* timers that differ by less count as equal */
enum { FIRST_ALARM_CLOCK = 8 };  /* these wake a sleeping machine, and are otherwise like the clocks of the same name */

static long long now_ns(clockid_t clock) {
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long value_of(const char *text, const char *name, long long *second) {
    const char *line = strstr(text, name);
    long long first = 0;
    *second = 0;
    if (line) sscanf(line + strlen(name), " (%lld, %lld)", &first, second);
    return first;
}

/* Finds when a timer expires by its clock, in units of GRAIN_NS, 0 if it does not; returns false if that is unknown.
 * The kernel shows the time left, so the time of reading must be known. */
bool find_expiry(pid_t pid, const char *number, uint64_t *expiry) {
    static const clockid_t alarms[] = {CLOCK_REALTIME, CLOCK_BOOTTIME};
    char name[64], text[2048];
    long long shortest = LONGEST_NS;
    int clock;
    snprintf(name, sizeof name, "fdinfo/%.20s", number);
    for (int i = 0; i < TRIES; i++) {
        if (read_proc(pid, name, text, sizeof text) <= 0) return false;
        const char *told = strstr(text, "clockid:");
        if (!told || sscanf(told, "clockid: %d", &clock) != 1 || !strstr(text, "it_value:")) return false;
        if (clock >= FIRST_ALARM_CLOCK) clock = alarms[clock > FIRST_ALARM_CLOCK];
        long long before = now_ns(clock), left, rest;
        if (read_proc(pid, name, text, sizeof text) <= 0) return false;
        long long after = now_ns(clock);
        left = value_of(text, "it_value:", &rest);
        left = left * 1000000000 + rest;
        if (left && after - before >= shortest) continue;
        *expiry = left ? (uint64_t)((before + after) / 2 + left) / GRAIN_NS : 0;
        shortest = after - before;
        if (!left || shortest < BRIEFLY_NS) return true;
    }
    return shortest < LONGEST_NS;
}
