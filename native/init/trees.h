/* Files and folders in many small requests, for the host's `put` and `get`; see trees.c. */
#ifndef TVSNAP_TREES_H
#define TVSNAP_TREES_H

#include "basics.h"

int look_at(const char *path);
int pack(void);
int unpack(void);

#endif
