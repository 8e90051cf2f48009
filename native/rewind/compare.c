#include "compare.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include "facts.h"

bool note_process(struct process *p, struct reason *why) {
    if (!get_registers(p, &p->registers) || !waits(p, &p->registers)) return fail(why, "process %d does not wait", p->pid);
    struct iovec part = {p->xstate, sizeof p->xstate};
    if (ptrace(PTRACE_GETREGSET, p->pid, NT_X86_XSTATE, &part))
        return fail(why, "the registers of process %d: %s", p->pid, strerror(errno));
    p->xstate_length = part.iov_len;
    p->blocked = p->blocks;
    bool good = (add_facts(&p->facts, p, &p->registers) && heap_end(p, &p->registers, &p->was.heap_end)) ||
                fail(why, "process %d cannot be looked at", p->pid);
    good = good && read_layout(p, &p->was, why) && read_memory(p, &p->was, why);
    return set_registers(p, &p->registers) && good;
}

static bool same_own_pages(struct process *p, const struct mapping *was, const struct mapping *is, struct reason *why) {
    size_t known = 0;
    for (size_t i = 0; i < is->owns; i++) {
        while (known < was->owns && was->own[known] < is->own[i]) known++;
        if (known == was->owns || was->own[known] != is->own[i] || memcmp(was->data + known * PAGE, is->data + i * PAGE, PAGE))
            return fail(why, "process %d has written at %lx, which is read-only", p->pid, (unsigned long)is->own[i]);
    }
    return true;
}

/* Compares what cannot be set: mappings but plain ones, and what a process has written where it may only read. */
bool same_fixed(struct process *p, const struct layout *is, struct reason *why) {
    if (!same_text(why, p->pid, &p->was.fixed, &is->fixed)) return false;
    size_t old = 0, new = 0;
    const struct mapping *before, *after;
    do {
        before = next_of(&p->was, &old, false);
        after = next_of(is, &new, false);
        if (!before != !after || (before && (before->start != after->start || before->end != after->end)))
            return fail(why, "process %d has other mappings", p->pid);
        if (before && !before->writable && !same_own_pages(p, before, after, why)) return false;
    } while (before);
    return true;
}

/* Compares what can only be compared, and has the heap end no earlier than it did. */
bool compare_process(struct process *p, struct layout *is, struct reason *why) {
    struct user_regs_struct at;
    struct text facts = {0};
    uint64_t end = 0;
    bool good = (get_registers(p, &at) && waits(p, &at)) || fail(why, "process %d does not wait", p->pid);
    good = good && ((add_facts(&facts, p, &at) && heap_end(p, &at, &end)) || fail(why, "process %d cannot be looked at", p->pid));
    good = good && same_text(why, p->pid, &p->facts, &facts);
    if (good && end < p->was.heap_end) good = set_heap_end(p, &at, why); /* what is above it is of no use to anybody */
    *is = (struct layout){.heap_end = p->was.heap_end, .stack_start = p->was.stack_start};
    good = good && read_layout(p, is, why) && read_memory(p, is, why) && same_fixed(p, is, why);
    free(facts.data);
    return set_registers(p, &at) && good;
}
