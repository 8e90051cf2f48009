#include "restore.h"

#include <elf.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "compare.h"

/* Maps or unmaps each range of plain memory that is in one layout and not in the other. */
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
            long result = 0, length = (long)(to - from), fixed = 0x32; /* private, anonymous, at this address */
            if (!inside && (map ? !call(p, at, SYS_mmap, (long)from, length, 3, fixed, &result) || result != (long)from
                                : !call(p, at, SYS_munmap, (long)from, length, 0, 0, &result) || result))
                return false;
            from = to;
        }
    }
    return true;
}

/* Moves plain memory and the stack back to where they were. */
static bool set_layout(struct process *p, const struct user_regs_struct *at, struct reason *why) {
    if (same_layout(&p->was, &p->is)) return true;
    bool good = change_memory(p, at, &p->is, &p->was, false) && change_memory(p, at, &p->was, &p->is, true);
    begin_layout(&p->is, p->was.heap_end, p->was.stack_start);
    good = good && read_layout(p, &p->is, why) && same_layout(&p->was, &p->is) && same_fixed(p, why) && find_others(p, why);
    return good || fail(why, "the memory of process %d does not lie where it lay", p->pid);
}

bool set_process(struct process *p, struct reason *why) {
    struct user_regs_struct at;
    if (!get_registers(p, &at) || !set_heap_end(p, &at, why) || !set_layout(p, &at, why)) return false;
    for (size_t i = 0; i < p->other_count; i++)
        if (pwrite(p->memory, p->others[i].data, PAGE, (off_t)p->others[i].address) != PAGE)
            return fail(why, "the memory of process %d cannot be written", p->pid);
    struct iovec part = {p->xstate, p->xstate_length};
    if (!set_registers(p, &p->registers) || ptrace(PTRACE_SETREGSET, p->pid, NT_X86_XSTATE, &part))
        return fail(why, "the registers of process %d cannot be set", p->pid);
    p->blocks = p->blocked;
    return true;
}
