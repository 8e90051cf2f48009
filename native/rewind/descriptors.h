/* What a process has open: what each descriptor leads to, how it is set, and what others can set of it. */
#ifndef TVSNAP_REWIND_DESCRIPTORS_H
#define TVSNAP_REWIND_DESCRIPTORS_H

#include "text.h"

bool add_link(struct text *to, int pid, const char *name);
bool add_descriptors(struct text *to, int pid);

#endif
