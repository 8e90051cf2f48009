/* Returns what was seen of processes. */
#ifndef TVSNAP_LOOK_RESULT_H
#define TVSNAP_LOOK_RESULT_H

#include "look.h"
#include "memory.h"

int tell(struct told *told, struct text *found, int error);

#endif
