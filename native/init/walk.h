/* Lists everything below directories: as records, or as one digest that changes when any of it does (walk.c). */
#ifndef TVSNAP_WALK_H
#define TVSNAP_WALK_H

#include "basics.h"

int walk_main(char **arguments);

#endif
