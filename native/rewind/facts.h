/* State of a process that can only be compared: credentials, scheduling, limits, namespaces, descriptors, and
 * answers. */
#ifndef TVSNAP_REWIND_FACTS_H
#define TVSNAP_REWIND_FACTS_H

#include "tracee.h"

bool add_facts(struct text *to, struct process *p, const struct user_regs_struct *at, uint64_t *heap_end);

#endif
