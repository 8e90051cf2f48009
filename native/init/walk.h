/* All that lies below directories: as records, or as one number that changes when any of them does (walk.c). */
#ifndef TVSNAP_WALK_H
#define TVSNAP_WALK_H

#include "basics.h"

int walk_main(char **arguments);

#endif
