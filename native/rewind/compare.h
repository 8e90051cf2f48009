/* Takes down what a process is, and compares it with that. */
#ifndef TVSNAP_REWIND_COMPARE_H
#define TVSNAP_REWIND_COMPARE_H

#include "tracee.h"

bool note_process(struct process *p, struct reason *why);
bool compare_process(struct process *p, struct layout *is, struct reason *why);
bool same_fixed(struct process *p, const struct layout *is, struct reason *why);

#endif
