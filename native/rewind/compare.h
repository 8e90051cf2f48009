/* Records the state of a process, and compares it later. */
#ifndef TVSNAP_REWIND_COMPARE_H
#define TVSNAP_REWIND_COMPARE_H

#include "tracee.h"

bool note_state(struct process *p, struct reason *why);
bool note_process(struct process *p, struct reason *why);
bool keep_pages(struct process *p, const struct layout *layout);
bool compare_state(struct process *p, struct reason *why);
bool compare_process(struct process *p, struct reason *why);
bool same_fixed(const struct process *p, struct reason *why);
bool find_others(struct process *p, struct reason *why);

#endif
