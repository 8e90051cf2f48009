/* Kernel state of a process that only the process itself can read, by system calls that it makes for us. */
#ifndef TVSNAP_REWIND_ASKED_H
#define TVSNAP_REWIND_ASKED_H

#include "tracee.h"

bool add_answers(struct text *to, struct process *p, const struct user_regs_struct *at, uint64_t *heap_end);

#endif
