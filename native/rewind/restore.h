/* Restores a process to its recorded state. */
#ifndef TVSNAP_REWIND_RESTORE_H
#define TVSNAP_REWIND_RESTORE_H

#include "tracee.h"

bool set_process(struct process *p, struct reason *why);

#endif
