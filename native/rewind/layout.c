#include "layout.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tracee.h"

enum { MOST_MEMORY = 64 << 20 }; /* bytes that are kept of one process */
#define MOST_SPAN (4ull << 30)   /* bytes of its address space that are looked through: a process maps more than it has */
#define PLAIN "rd wr mr mw me ac " /* VmFlags of memory that a process got from mmap, and did nothing else to */
#define OWN_PAGE(entry) ((entry) >> 62 && !((entry) >> 61 & 1)) /* present or swapped, and no page of a file */

/* One mapping as /proc/PID/smaps tells of it. */
struct told {
    unsigned long start, end;
    char rights[5];
    char flags[128];  /* VmFlags, but for what says that a page was written */
    const char *name; /* as long as the text lives */
};

static bool add_mapping(struct layout *to, const struct told *m) {
    bool plain = !*m->name && strcmp(m->rights, "rw-p") == 0 && strcmp(m->flags, PLAIN) == 0;
    struct mapping *last = to->count ? &to->mappings[to->count - 1] : NULL;
    if (plain && last && last->plain && last->end == m->start) {
        last->end = m->end;
        return true;
    }
    struct mapping *grown = realloc(to->mappings, (to->count + 1) * sizeof *grown);
    if (!grown) return false;
    to->mappings = grown;
    grown[to->count++] = (struct mapping){.start = m->start, .end = m->end, .writable = m->rights[1] == 'w',
                                          .of_a_file = isxdigit((unsigned char)*m->name), .plain = plain};
    return true;
}

/* Adds a mapping to what is looked at; the heap and the stack only as far as `to` says. */
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
    bool seen = !of_the_kernel && m.rights[3] != 's' && (m.rights[0] == 'r' || m.rights[1] == 'w');
    if (seen && (m.start >= m.end || !add_mapping(to, &m))) return fail(why, "there is no memory for a mapping");
    if (seen && (to->span += m.end - m.start) > MOST_SPAN) return fail(why, "process %d maps more than is looked through", p->pid);
    if (seen && to->mappings[to->count - 1].plain) return true;
    return add_line(&to->fixed, "%lx-%lx %s %s %s\n", (unsigned long)start, (unsigned long)end, m.rights, m.name, m.flags) ||
           fail(why, "a mapping of process %d has too long a name", p->pid);
}

/* Reads where the memory of a process lies. Which file a mapping is of is told by device and inode, before its name. */
bool read_layout(struct process *p, struct layout *to, struct reason *why) {
    struct text all = {0};
    struct told m = {.name = NULL}, next = m;
    bool good = (add_file(&all, p->pid, "smaps") && all.data) || fail(why, "the mappings of process %d cannot be read", p->pid);
    for (char *line = all.data, *end; good && line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        int name = 0;
        if (strncmp(line, "VmFlags: ", 9) == 0 && m.name) {
            size_t length = 0;
            for (const char *flag = line + 9; flag[0] && flag[1] && length + 4 < sizeof m.flags; flag += 3)
                if (strncmp(flag, "sd", 2)) length += (size_t)snprintf(m.flags + length, 4, "%.2s ", flag);
            good = take_mapping(p, to, m, why);
            m.name = NULL;
        } else if (sscanf(line, "%lx-%lx %4s %n", &next.start, &next.end, next.rights, &name) == 3 && name) {
            m = next;
            /* what is left: "OFFSET DEVICE INODE   NAME"; of no file at all: "00000000 00:00 0" */
            m.name = line + name;
            if (strncmp(m.name, "00000000 00:00 0", 16) == 0) m.name += 16 + strspn(m.name + 16, " ");
            m.flags[0] = 0;
        }
    }
    free(all.data);
    return good && (to->count || fail(why, "the mappings of process %d are not understood", p->pid));
}

/* Finds the pages of one mapping that are kept; stops beyond `most`, since a file may be all hole. */
static bool find_own(int pagemap, struct mapping *m, size_t most) {
    size_t pages = (m->end - m->start) / PAGE;
    uint64_t entries[512];
    for (size_t at = 0; at < pages && m->owns <= most; at += 512) {
        size_t some = pages - at < 512 ? pages - at : 512;
        if (pread(pagemap, entries, some * 8, (off_t)((m->start / PAGE + at) * 8)) != (ssize_t)(some * 8)) return false;
        for (size_t i = 0; i < some; i++) {
            if (!OWN_PAGE(entries[i]) && !(m->writable && m->of_a_file)) continue;
            if (m->owns % 64 == 0) {
                uint64_t *grown = realloc(m->own, (m->owns + 64) * sizeof *m->own);
                if (!grown) return false;
                m->own = grown;
            }
            m->own[m->owns++] = m->start + (at + i) * PAGE;
        }
    }
    return true;
}

/* Reads pages of one mapping, each run of neighbours at once. */
static bool read_own(struct process *p, struct mapping *m) {
    m->data = m->owns ? malloc(m->owns * PAGE) : NULL;
    if (m->owns && !m->data) return false;
    for (size_t first = 0, next; first < m->owns; first = next) {
        for (next = first + 1; next < m->owns && m->own[next] == m->own[next - 1] + PAGE; next++) continue;
        ssize_t length = (ssize_t)((next - first) * PAGE);
        if (pread(p->memory, m->data + first * PAGE, (size_t)length, (off_t)m->own[first]) != length) return false;
    }
    return true;
}

bool read_memory(struct process *p, struct layout *layout, struct reason *why) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/pagemap", p->pid);
    int pagemap = open(path, O_RDONLY | O_CLOEXEC);
    bool good = pagemap >= 0, fits = true;
    size_t total = 0;
    for (size_t i = 0; good && fits && i < layout->count; i++) {
        good = find_own(pagemap, &layout->mappings[i], (MOST_MEMORY - total) / PAGE);
        total += layout->mappings[i].owns * PAGE;
        fits = total <= MOST_MEMORY;
        good = good && (!fits || read_own(p, &layout->mappings[i]));
    }
    if (pagemap >= 0) close(pagemap);
    if (!fits) return fail(why, "process %d has more than %d MiB of memory", p->pid, MOST_MEMORY >> 20);
    return good || fail(why, "the memory of process %d cannot be read", p->pid);
}

void free_layout(struct layout *layout) {
    for (size_t i = 0; i < layout->count; i++) {
        free(layout->mappings[i].data);
        free(layout->mappings[i].own);
    }
    free(layout->mappings);
    free(layout->fixed.data);
    memset(layout, 0, sizeof *layout);
}

bool same_layout(const struct layout *was, const struct layout *is) {
    bool same = was->count == is->count;
    for (size_t i = 0; same && i < was->count; i++)
        same = was->mappings[i].start == is->mappings[i].start && was->mappings[i].end == is->mappings[i].end;
    return same;
}

/* The next mapping that is, or is not, a plain one. */
const struct mapping *next_of(const struct layout *layout, size_t *at, bool plain) {
    while (*at < layout->count && layout->mappings[*at].plain != plain) ++*at;
    return *at < layout->count ? &layout->mappings[(*at)++] : NULL;
}

bool heap_end(struct process *p, const struct user_regs_struct *at, uint64_t *end) {
    long result;
    if (!call(p, at, SYS_brk, 0, 0, 0, 0, &result)) return false;
    *end = (uint64_t)result;
    return true;
}

bool set_heap_end(struct process *p, const struct user_regs_struct *at, struct reason *why) {
    long result;
    return (call(p, at, SYS_brk, (long)p->was.heap_end, 0, 0, 0, &result) && (uint64_t)result == p->was.heap_end) ||
           fail(why, "the heap of process %d does not become what it was", p->pid);
}
