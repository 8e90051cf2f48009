#include "changes.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include "compare.h"

/* Records all of a waiting process but the contents of its memory, and which pages are its own. */
bool note_frame(struct process *p, struct reason *why) {
    p->exact = true;
    return note_state(p, why);
}

/* Gives the registers of vectors what they had: a process that waits in a system call keeps nothing in them (System V
 * ABI, 3.2.1), and they differ after each call. */
static bool set_vectors(struct process *p) {
    struct iovec part = {p->xstate, p->xstate_length};
    return ptrace(PTRACE_SETREGSET, p->pid, NT_X86_XSTATE, &part) == 0;
}

/* Compares a stopped process with its record, and reads all of its pages; fails if more than memory and registers has
 * changed. The memory that `memory` refers to is valid until the next call for the same process. */
bool see_changes(struct process *p, struct rewind_memory *memory, struct reason *why) {
    if (!compare_state(p, why)) return false;
    if (p->blocks != p->blocked || p->signal) return fail(why, "process %d blocks other signals", p->pid);
    if (p->heap_end != p->was.heap_end || !same_layout(&p->was, &p->is))
        return fail(why, "the memory of process %d lies elsewhere", p->pid);
    if (!keep_pages(p, &p->is)) return fail(why, "the memory of process %d cannot be read", p->pid);
    if (!set_vectors(p)) return fail(why, "the registers of process %d cannot be set", p->pid);
    *memory = (struct rewind_memory){
        .own = p->is.own,
        .owns = p->is.owns,
        .contents = p->data,
        .registers_were = (const unsigned long *)&p->registers,
        .registers = (const unsigned long *)&p->at,
    };
    return true;
}
