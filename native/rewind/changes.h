/* What has changed of processes that have kept all but their memory and some registers. */
#ifndef TVSNAP_REWIND_CHANGES_H
#define TVSNAP_REWIND_CHANGES_H

#include "rewind.h"
#include "tracee.h"

bool note_frame(struct process *p, struct reason *why);
bool see_changes(struct process *p, struct rewind_memory *memory, struct reason *why);

#endif
