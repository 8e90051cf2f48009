/* Makes a process what was taken down of it. */
#ifndef TVSNAP_REWIND_RESTORE_H
#define TVSNAP_REWIND_RESTORE_H

#include "tracee.h"

bool set_process(struct process *p, struct reason *why);

#endif
