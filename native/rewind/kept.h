/* Kernel state of a stopped process that only its tracer can read: registers that nothing else saves, and
 * scheduling. */
#ifndef TVSNAP_REWIND_KEPT_H
#define TVSNAP_REWIND_KEPT_H

#include "tracee.h"

bool tells_of_dispatch(const struct process *p);
bool add_kept(struct text *to, const struct process *p);

#endif
