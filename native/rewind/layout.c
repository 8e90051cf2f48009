#include "layout.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tracee.h"

enum { MOST_MEMORY = 64 << 20, MOST_PAGES = MOST_MEMORY / PAGE }; /* that are saved of one process */
enum { MOST_RUNS = 64 };         /* of pages that are read at once */
#define MOST_SPAN (4ull << 30)   /* bytes of address space that are scanned: a process maps more than it uses */
#define PLAIN "rd wr mr mw me ac " /* VmFlags of memory that a process got from mmap, and did not change otherwise */
#define OWN_PAGE(entry) ((entry) >> 62 && !((entry) >> 61 & 1)) /* present or swapped, and not a page of a file */

/* One mapping in /proc/PID/smaps. */
struct told {
    unsigned long start, end;
    char rights[5];
    char flags[128];  /* VmFlags, except the one that shows that a page was written */
    const char *name; /* valid as long as the text */
};

static bool add_mapping(struct layout *to, const struct told *m) {
    bool plain = !*m->name && strcmp(m->rights, "rw-p") == 0 && strcmp(m->flags, PLAIN) == 0;
    struct mapping *last = to->count ? &to->mappings[to->count - 1] : NULL;
    if (plain && last && last->plain && last->end == m->start) {
        last->end = m->end;
        return true;
    }
    if (to->count == to->room) {
        size_t room = to->room ? to->room * 2 : 64;
        struct mapping *grown = realloc(to->mappings, room * sizeof *grown);
        if (!grown) return false;
        to->mappings = grown;
        to->room = room;
    }
    to->mappings[to->count++] = (struct mapping){.start = m->start, .end = m->end, .writable = m->rights[1] == 'w',
                                                 .of_a_file = isxdigit((unsigned char)*m->name), .plain = plain,
                                                 .vdso = strcmp(m->name, "[vdso]") == 0};
    return true;
}

/* Adds the mode and the size of a mapped file: CRIU restores no process whose files have others. */
static bool add_mapped_file(struct text *to, const struct process *p, const struct told *m) {
    struct stat about;
    char name[64];
    snprintf(name, sizeof name, "map_files/%lx-%lx", m->start, m->end);
    return syscall(SYS_newfstatat, p->directory, name, &about, 0) == 0 &&
           add_line(to, "mode %o, %ld bytes\n", about.st_mode, (long)about.st_size);
}

/* Adds a mapping to those that are inspected; the heap and the stack only up to the limits in `to`. */
static bool take_mapping(struct process *p, struct layout *to, struct told m, struct reason *why) {
    uint64_t start = m.start, end = m.end;
    if (strcmp(m.name, "[heap]") == 0) {
        end = 0;
        if (m.end > to->heap_end) m.end = (to->heap_end + PAGE - 1) / PAGE * PAGE;
    } else if (strcmp(m.name, "[stack]") == 0) {
        start = 0;
        if (!to->stack_start) to->stack_start = m.start;
        if (m.start > to->stack_start) return fail(why, "process %d has a shorter stack", p->pid);
        m.start = to->stack_start;
    }
    bool of_the_kernel = strncmp(m.name, "[vvar", 5) == 0 || strcmp(m.name, "[vsyscall]") == 0;
    if (m.rights[3] == 's' && m.rights[1] == 'w') return fail(why, "process %d shares memory with others", p->pid);
    if (p->exact && is_deleted(m.name)) return fail(why, "process %d has mapped a deleted file", p->pid);
    if (p->exact && isxdigit((unsigned char)*m.name) && !add_mapped_file(&to->fixed, p, &m))
        return fail(why, "a file that process %d has mapped cannot be looked at", p->pid);
    bool seen = !of_the_kernel && m.rights[3] != 's' && (m.rights[0] == 'r' || m.rights[1] == 'w');
    if (seen && (m.start >= m.end || !add_mapping(to, &m))) return fail(why, "there is no memory for a mapping");
    if (seen && (to->span += m.end - m.start) > MOST_SPAN) return fail(why, "process %d maps more than is looked through", p->pid);
    if (seen && to->mappings[to->count - 1].plain) return true;
    return add_line(&to->fixed, "%lx-%lx %s %s %s\n", (unsigned long)start, (unsigned long)end, m.rights, m.name, m.flags) ||
           fail(why, "a mapping of process %d has too long a name", p->pid);
}

/* Parses a line `START-END RIGHTS OFFSET DEVICE INODE NAME`; anonymous mappings have "00000000 00:00 0". */
static bool read_head(char *line, struct told *m) {
    char *at;
    m->start = strtoul(line, &at, 16);
    if (*at != '-') return false;
    m->end = strtoul(at + 1, &at, 16);
    if (*at != ' ' || strlen(at) < sizeof m->rights + 1) return false;
    memcpy(m->rights, at + 1, sizeof m->rights - 1);
    m->rights[sizeof m->rights - 1] = 0;
    m->name = at + 1 + sizeof m->rights;
    if (strncmp(m->name, "00000000 00:00 0", 16) == 0) m->name += 16 + strspn(m->name + 16, " ");
    return true;
}

static void read_flags(const char *flag, struct told *m) {
    size_t length = 0;
    for (; flag[0] && flag[1] && length + 4 < sizeof m->flags; flag += 3) {
        if (strncmp(flag, "sd", 2) == 0) continue;
        memcpy(m->flags + length, (char[]){flag[0], flag[1], ' '}, 3);
        length += 3;
    }
    m->flags[length] = 0;
}

/* Reads the mappings of a process. A file is identified by device and inode, before its name. */
static bool read_mappings(struct process *p, struct layout *to, struct reason *why) {
    static const char last[] = "\nVmFlags: "; /* the last line of each mapping */
    struct text all = {0};
    struct told m;
    bool good = (add_list(&all, p->directory, "smaps") && all.data) || fail(why, "the mappings of process %d cannot be read", p->pid);
    for (char *line = all.data, *flags, *end; good && line && *line; line = end + 1) {
        char *after = strchr(line, '\n');
        flags = after ? strstr(after, last) : NULL;
        end = flags ? strchr(flags + 1, '\n') : NULL;
        if (end) *after = *end = 0;
        good = (end && read_head(line, &m)) || fail(why, "the mappings of process %d are not understood", p->pid);
        if (good) read_flags(flags + sizeof last - 1, &m);
        good = good && take_mapping(p, to, m, why);
    }
    free(all.data);
    return good && (to->count || fail(why, "process %d has no memory", p->pid));
}

static bool add_own(struct layout *to, uint64_t address) {
    if (to->owns == to->own_room) {
        size_t room = to->own_room ? to->own_room * 2 : 512;
        uint64_t *grown = realloc(to->own, room * sizeof *grown);
        if (!grown) return false;
        to->own = grown;
        to->own_room = room;
    }
    to->own[to->owns++] = address;
    return true;
}

/* Finds the pages of one mapping that are saved; stops beyond MOST_PAGES, since a file may be one large hole. */
static bool find_own(int pagemap, struct layout *to, const struct mapping *m, bool exact) {
    size_t pages = (m->end - m->start) / PAGE;
    uint64_t entries[512];
    for (size_t at = 0; at < pages && to->owns <= MOST_PAGES; at += 512) {
        size_t some = pages - at < 512 ? pages - at : 512;
        if (pread(pagemap, entries, some * 8, (off_t)((m->start / PAGE + at) * 8)) != (ssize_t)(some * 8)) return false;
        for (size_t i = 0; i < some; i++) {
            bool kept = OWN_PAGE(entries[i]) || (exact ? m->vdso : m->writable && m->of_a_file);
            if (kept && !add_own(to, m->start + (at + i) * PAGE)) return false;
        }
    }
    return true;
}

void begin_layout(struct layout *layout, uint64_t heap_end, uint64_t stack_start) {
    layout->heap_end = heap_end;
    layout->stack_start = stack_start;
    layout->fixed.length = layout->count = layout->owns = 0;
    layout->span = 0;
}

/* Reads the mappings of a process, and which of its pages are its own, into a layout that has begun. */
bool read_layout(struct process *p, struct layout *to, struct reason *why) {
    int pagemap = openat(p->directory, "pagemap", O_RDONLY | O_CLOEXEC);
    bool good = read_mappings(p, to, why), found = pagemap >= 0;
    for (size_t i = 0; good && found && i < to->count; i++) found = find_own(pagemap, to, &to->mappings[i], p->exact);
    if (pagemap >= 0) close(pagemap);
    if (good && to->owns > MOST_PAGES) return fail(why, "process %d has more than %d MiB of memory", p->pid, MOST_MEMORY >> 20);
    return good && (found || fail(why, "the memory of process %d cannot be read", p->pid));
}

/* Reads pages one by one, including memory that the process itself may not read. */
static bool read_one_by_one(struct process *p, const uint64_t *addresses, size_t count, char *data) {
    for (size_t i = 0; i < count; i++)
        if (pread(p->memory, data + i * PAGE, PAGE, (off_t)addresses[i]) != PAGE) return false;
    return true;
}

/* Reads pages, in the order of addresses. */
bool read_pages(struct process *p, const uint64_t *addresses, size_t count, char *data) {
    struct iovec runs[MOST_RUNS];
    for (size_t first = 0, next; first < count; first = next) {
        size_t used = 0;
        for (next = first; next < count; next++) {
            bool goes_on = next > first && addresses[next] == addresses[next - 1] + PAGE;
            if (!goes_on && used == MOST_RUNS) break;
            if (goes_on) runs[used - 1].iov_len += PAGE;
            else runs[used++] = (struct iovec){(void *)addresses[next], PAGE};
        }
        size_t length = (next - first) * PAGE;
        struct iovec to = {data + first * PAGE, length};
        if (process_vm_readv(p->pid, &to, 1, runs, used, 0) != (ssize_t)length &&
            !read_one_by_one(p, addresses + first, next - first, data + first * PAGE))
            return false;
    }
    return true;
}

void free_layout(struct layout *layout) {
    free(layout->mappings);
    free(layout->fixed.data);
    free(layout->own);
    memset(layout, 0, sizeof *layout);
}

bool same_layout(const struct layout *was, const struct layout *is) {
    bool same = was->count == is->count;
    for (size_t i = 0; same && i < was->count; i++)
        same = was->mappings[i].start == is->mappings[i].start && was->mappings[i].end == is->mappings[i].end;
    return same;
}

/* Returns the next mapping that is, or is not, a plain one. */
const struct mapping *next_of(const struct layout *layout, size_t *at, bool plain) {
    while (*at < layout->count && layout->mappings[*at].plain != plain) ++*at;
    return *at < layout->count ? &layout->mappings[(*at)++] : NULL;
}

bool set_heap_end(struct process *p, const struct user_regs_struct *at, struct reason *why) {
    long result;
    if (p->heap_end == p->was.heap_end) return true;
    if (!call(p, at, SYS_brk, (long)p->was.heap_end, 0, 0, 0, &result) || (uint64_t)result != p->was.heap_end)
        return fail(why, "the heap of process %d does not become what it was", p->pid);
    p->heap_end = p->was.heap_end;
    return true;
}
