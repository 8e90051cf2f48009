/* Kernel state of a process that others, or its children, can set. */
#ifndef TVSNAP_ATTRIBUTES_H
#define TVSNAP_ATTRIBUTES_H

#include "basics.h"
#include "hash.h"

bool kernel_attributes(pid_t pid, struct digest *found);
void shell_attributes(pid_t pid, struct digest *all, struct digest *kept);

#endif
