/* The host's parameters: when the clock began, and the seed. One file, mapped by each process (fixed_clock.py writes it).
 * `mark` is changed by a reseeding inside, and by the host for a fork: processes then look whether they were reseeded.
 *
 * The kernel's times are converted to the shown ones by a list of spans. Each begins when the sandbox, or the state
 * that it was forked from, began to run on some machine: `real` is the kernel's time then, and `shown` the time of
 * the sandbox's clock. So the time between a snapshot and a fork is left out, and files written before the fork keep
 * the times that they were seen with. The host adds a span while no process of the sandbox runs.
 *
 * Times before the first span are the image's, and unchanged; but one that is later than the clock's start is shown
 * within the hour before it, in the same order, so that nothing comes from the future. */
#include "preload.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PATH "/run/tvsnap/fixed"

enum { VERSION = 1, SIZE = 65536, CLOCK = 1, SEED = 2 };
#define WINDOW (3600 * SECOND)
#define WINDOW_SHIFT 19 /* 60 years are compressed into an hour */

struct span {
    int64_t real, shown;
};

struct page {
    uint32_t version, flags;
    uint64_t seed, count;
    uint64_t mark;
    struct span spans[(SIZE - 32) / sizeof(struct span)];
};

static struct page none;
static const struct page *mapped;

static const struct page *map(void) {
    long fd = kernel(SYS_openat, AT_FDCWD, (long)PATH, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return &none;
    const struct page *page = &none;
    struct stat about;
    if (kernel(SYS_fstat, fd, (long)&about, 0, 0) == 0 && S_ISREG(about.st_mode) && about.st_size == SIZE) {
        void *at = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, (int)fd, 0);
        if (at != MAP_FAILED && ((const struct page *)at)->version == VERSION) page = at;
    }
    kernel(SYS_close, fd, 0, 0, 0);
    return page;
}

static const struct page *page(void) {
    const struct page *known = __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
    if (known) return known;
    known = map();
    __atomic_store_n(&mapped, known, __ATOMIC_RELEASE); /* two threads may both map it, which does no harm */
    return known;
}

bool clock_is_set(void) { return page()->flags & CLOCK; }
bool seed_is_set(void) { return page()->flags & SEED; }
uint64_t seed(void) { return page()->seed; }
uint64_t seed_mark(void) { return __atomic_load_n(&page()->mark, __ATOMIC_ACQUIRE); }

static size_t spans(void) { return __atomic_load_n(&page()->count, __ATOMIC_ACQUIRE); }

/* Returns the last span that begins at or before `time`, by one of the two clocks; the first span if there is none. */
static size_t span_of(int64_t time, bool shown) {
    const struct span *all = page()->spans;
    size_t low = 0, high = spans();
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if ((shown ? all[middle].shown : all[middle].real) <= time) low = middle;
        else high = middle;
    }
    return low;
}

int64_t shown_time(int64_t real) {
    const struct span *all = page()->spans;
    if (!clock_is_set()) return real;
    if (real >= all[0].real) {
        size_t i = span_of(real, false);
        int64_t shown = real - all[i].real + all[i].shown;
        bool last = i + 1 == spans();
        return last || shown < all[i + 1].shown ? shown : all[i + 1].shown;
    }
    if (real < all[0].shown) return real;
    int64_t squeezed = (real - all[0].shown) >> WINDOW_SHIFT;
    return all[0].shown - WINDOW + (squeezed < WINDOW ? squeezed : WINDOW - 1);
}

int64_t real_time(int64_t shown) {
    const struct span *all = page()->spans;
    if (!clock_is_set() || shown < all[0].shown) return shown;
    size_t i = span_of(shown, true);
    return shown - all[i].shown + all[i].real;
}

static int64_t nanoseconds(struct timespec t) { return t.tv_sec * SECOND + t.tv_nsec; }

static struct timespec timespec(int64_t time) {
    int64_t seconds = time / SECOND - (time % SECOND < 0);
    return (struct timespec){.tv_sec = seconds, .tv_nsec = time - seconds * SECOND};
}

/* Times that do not fit into 64 bits of nanoseconds are not converted. */
static bool fits(struct timespec t) { return t.tv_sec > -9000000000LL && t.tv_sec < 9000000000LL; }

struct timespec shown_timespec(struct timespec real) {
    return clock_is_set() && fits(real) ? timespec(shown_time(nanoseconds(real))) : real;
}

struct timespec real_timespec(struct timespec shown) {
    return clock_is_set() && fits(shown) ? timespec(real_time(nanoseconds(shown))) : shown;
}

/* Whether a deadline by an unknown clock is by this one: clocks that count from a machine's boot have much smaller
 * values. */
bool is_of_shown_clock(const struct timespec *deadline) {
    return clock_is_set() && deadline->tv_sec > page()->spans[0].shown / SECOND / 2;
}
