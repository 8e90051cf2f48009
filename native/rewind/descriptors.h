/* The open files of a process: the target of each descriptor, its settings, and what others can set of it. */
#ifndef TVSNAP_REWIND_DESCRIPTORS_H
#define TVSNAP_REWIND_DESCRIPTORS_H

#include "tracee.h"

bool add_link(struct text *to, const struct process *p, const char *name);
bool add_place(struct text *to, const struct process *p, const char *name);
bool add_descriptors(struct text *to, struct process *p);

#endif
