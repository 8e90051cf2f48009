#include "compare.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include "facts.h"

enum { AT_ONCE = 16 }; /* pages */
static const char EMPTY[PAGE];

/* Saves the contents of the process' own pages, as a layout lists them. */
bool keep_pages(struct process *p, const struct layout *layout) {
    size_t length = layout->owns * PAGE;
    if (length > p->data_room) {
        free(p->data);
        p->data = malloc(length);
        p->data_room = p->data ? length : 0;
        if (!p->data) return false;
    }
    return read_pages(p, layout->own, layout->owns, p->data);
}

static bool see_facts(struct process *p, const struct user_regs_struct *at, struct text *facts, struct reason *why) {
    facts->length = 0;
    return add_facts(facts, p, at, &p->heap_end) || fail(why, "process %d cannot be looked at", p->pid);
}

/* Records a waiting process without the contents of its memory. */
bool note_state(struct process *p, struct reason *why) {
    if (!get_registers(p, &p->registers) || !waits(p, &p->registers)) return fail(why, "process %d does not wait", p->pid);
    struct iovec part = {p->xstate, sizeof p->xstate};
    if (ptrace(PTRACE_GETREGSET, p->pid, NT_X86_XSTATE, &part))
        return fail(why, "the registers of process %d: %s", p->pid, strerror(errno));
    p->xstate_length = part.iov_len;
    p->blocked = p->blocks;
    bool good = see_facts(p, &p->registers, &p->facts, why);
    begin_layout(&p->was, p->heap_end, 0);
    good = good && read_layout(p, &p->was, why);
    return set_registers(p, &p->registers) && good;
}

bool note_process(struct process *p, struct reason *why) {
    return note_state(p, why) && (keep_pages(p, &p->was) || fail(why, "the memory of process %d cannot be read", p->pid));
}

static bool add_other(struct process *p, uint64_t address, const char *wanted) {
    if (p->other_count == p->other_room) {
        size_t room = p->other_room ? p->other_room * 2 : 64;
        struct page *grown = realloc(p->others, room * sizeof *grown);
        if (!grown) return false;
        p->others = grown;
        p->other_room = room;
    }
    p->others[p->other_count++] = (struct page){address, wanted};
    return true;
}

/* Whether a page is in a writable mapping; addresses must be passed in ascending order. */
static bool is_writable(const struct layout *layout, size_t *at, uint64_t address) {
    while (*at < layout->count && layout->mappings[*at].end <= address) ++*at;
    return *at < layout->count && layout->mappings[*at].writable;
}

/* The old and the new pages of a process, compared in parallel. */
struct comparison {
    struct process *p;
    struct reason *why;
    size_t old;           /* the first old page that was not compared yet */
    size_t was_in, is_in; /* mappings, for is_writable */
};

static bool has_written(const struct comparison *c, uint64_t address) {
    fail(c->why, "process %d has written at %lx, which is read-only", c->p->pid, (unsigned long)address);
    return false;
}

static bool take_other(const struct comparison *c, uint64_t address, const char *wanted) {
    return add_other(c->p, address, wanted) || fail(c->why, "there is no memory to compare process %d in", c->p->pid);
}

/* Records those old pages up to an address that are gone: now they are empty. */
static bool compare_gone(struct comparison *c, uint64_t end) {
    const struct layout *was = &c->p->was;
    for (; c->old < was->owns && was->own[c->old] < end; c->old++) {
        const char *wanted = c->p->data + c->old * PAGE;
        if (!is_writable(was, &c->was_in, was->own[c->old])) return has_written(c, was->own[c->old]);
        if (memcmp(wanted, EMPTY, PAGE) && !take_other(c, was->own[c->old], wanted)) return false;
    }
    return true;
}

/* Compares a present page with its old contents: it was empty if it was not the process' own. */
static bool compare_there(struct comparison *c, uint64_t address, const char *there) {
    const struct layout *was = &c->p->was;
    bool known = c->old < was->owns && was->own[c->old] == address;
    const char *wanted = known ? c->p->data + c->old++ * PAGE : EMPTY;
    bool same = memcmp(wanted, there, PAGE) == 0;
    if (!(known && same) && !is_writable(&c->p->is, &c->is_in, address)) return has_written(c, address);
    return same || take_other(c, address, wanted);
}

/* Finds the pages whose contents differ. Also returns false if the process may only read one of them. */
bool find_others(struct process *p, struct reason *why) {
    struct comparison c = {.p = p, .why = why};
    char there[AT_ONCE * PAGE];
    p->other_count = 0;
    for (size_t first = 0, some; first < p->is.owns; first += some) {
        some = p->is.owns - first < AT_ONCE ? p->is.owns - first : AT_ONCE;
        if (!read_pages(p, p->is.own + first, some, there)) return fail(why, "the memory of process %d cannot be read", p->pid);
        for (size_t i = 0; i < some; i++) {
            uint64_t address = p->is.own[first + i];
            if (!compare_gone(&c, address) || !compare_there(&c, address, there + i * PAGE)) return false;
        }
    }
    return compare_gone(&c, UINT64_MAX);
}

/* Compares the mappings that cannot be restored: all except plain ones. */
bool same_fixed(const struct process *p, struct reason *why) {
    if (!same_text(why, p->pid, &p->was.fixed, &p->is.fixed)) return false;
    size_t old = 0, new = 0;
    const struct mapping *before, *after;
    do {
        before = next_of(&p->was, &old, false);
        after = next_of(&p->is, &new, false);
        if (!before != !after || (before && (before->start != after->start || before->end != after->end)))
            return fail(why, "process %d has other mappings", p->pid);
    } while (before);
    return true;
}

/* Compares what can only be compared, and moves the heap's end up to where it was if it is lower. */
bool compare_state(struct process *p, struct reason *why) {
    bool good = (get_registers(p, &p->at) && waits(p, &p->at)) || fail(why, "process %d does not wait", p->pid);
    good = good && see_facts(p, &p->at, &p->facts_now, why) && same_text(why, p->pid, &p->facts, &p->facts_now);
    if (good && p->heap_end < p->was.heap_end) good = set_heap_end(p, &p->at, why); /* nothing above it is in use */
    begin_layout(&p->is, p->was.heap_end, p->was.stack_start);
    good = good && read_layout(p, &p->is, why) && same_fixed(p, why);
    return set_registers(p, &p->at) && good;
}

bool compare_process(struct process *p, struct reason *why) { return compare_state(p, why) && find_others(p, why); }
