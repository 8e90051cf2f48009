#include "restore.h"

#include <elf.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "compare.h"

static bool write_page(struct process *p, uint64_t address, const char *data) {
    return pwrite(p->memory, data, PAGE, (off_t)address) == PAGE;
}

/* Writes what has changed: pages that are its own now and were not were empty, and those that are so no more are written. */
static bool write_back(struct process *p, const struct mapping *was, const struct mapping *is) {
    static const char empty[PAGE];
    for (size_t old = 0, new = 0; old < was->owns || new < is->owns;) {
        uint64_t before = old < was->owns ? was->own[old] : UINT64_MAX, after = new < is->owns ? is->own[new] : UINT64_MAX;
        const char *wanted = before <= after ? was->data + old * PAGE : empty;
        const char *there = after <= before ? is->data + new * PAGE : empty;
        if (memcmp(wanted, there, PAGE) && !write_page(p, before < after ? before : after, wanted)) return false;
        old += before <= after;
        new += after <= before;
    }
    return true;
}

/* Calls for each run of plain memory that is in one layout and not in another. */
static bool change_memory(struct process *p, const struct user_regs_struct *at, const struct layout *of, const struct layout *without,
                          bool map) {
    size_t one = 0, other = 0;
    const struct mapping *hole = next_of(without, &other, true);
    for (const struct mapping *m; (m = next_of(of, &one, true));) {
        for (uint64_t from = m->start; from < m->end;) {
            while (hole && hole->end <= from) hole = next_of(without, &other, true);
            bool inside = hole && hole->start <= from;
            uint64_t to = inside ? hole->end : hole && hole->start < m->end ? hole->start : m->end;
            if (to > m->end) to = m->end;
            long result = 0, length = (long)(to - from), fixed = 0x32; /* private, of no file, just there */
            if (!inside && (map ? !call(p, at, SYS_mmap, (long)from, length, 3, fixed, &result) || result != (long)from
                                : !call(p, at, SYS_munmap, (long)from, length, 0, 0, &result) || result))
                return false;
            from = to;
        }
    }
    return true;
}

/* Has plain memory and the stack lie where they lay. */
static bool set_layout(struct process *p, const struct user_regs_struct *at, struct layout *is, struct reason *why) {
    if (same_layout(&p->was, is)) return true;
    bool good = change_memory(p, at, is, &p->was, false) && change_memory(p, at, &p->was, is, true);
    free_layout(is);
    *is = (struct layout){.heap_end = p->was.heap_end, .stack_start = p->was.stack_start};
    good = good && read_layout(p, is, why) && same_layout(&p->was, is) && read_memory(p, is, why) && same_fixed(p, is, why);
    return good || fail(why, "the memory of process %d does not lie where it lay", p->pid);
}

bool set_process(struct process *p, struct layout *is, struct reason *why) {
    struct user_regs_struct at;
    if (!get_registers(p, &at) || !set_heap_end(p, &at, why) || !set_layout(p, &at, is, why)) return false;
    for (size_t i = 0; i < p->was.count; i++)
        if (p->was.mappings[i].writable && !write_back(p, &p->was.mappings[i], &is->mappings[i]))
            return fail(why, "the memory of process %d cannot be written", p->pid);
    struct iovec part = {p->xstate, p->xstate_length};
    if (!set_registers(p, &p->registers) || ptrace(PTRACE_SETREGSET, p->pid, NT_X86_XSTATE, &part))
        return fail(why, "the registers of process %d cannot be set", p->pid);
    p->blocks = p->blocked;
    return true;
}
