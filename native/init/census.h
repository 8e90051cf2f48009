/* What a backend must know of live processes, for one that cannot read the sandbox's /proc from outside (census.c). */
#ifndef TVSNAP_CENSUS_H
#define TVSNAP_CENSUS_H

#include "basics.h"

int holds_main(char **pids);
int census(pid_t shell, char **serving);

#endif
