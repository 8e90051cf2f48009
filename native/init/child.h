/* What a child of PID 1 does before it executes a program. */
#ifndef TVSNAP_CHILD_H
#define TVSNAP_CHILD_H

#include "basics.h"

void use_fd(int fd, int wanted);
void become_ordinary(void);
void execute(char **argv);

#endif
