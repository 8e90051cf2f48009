/* What the kernel keeps of a process that others, or its children, can set. */
#ifndef TVSNAP_ATTRIBUTES_H
#define TVSNAP_ATTRIBUTES_H

#include "basics.h"
#include "hash.h"

enum attributes {
    KEPT_BY_SHELLS, /* of the shell, but for what a shell made like it would have anew */
    ALL_OF_SHELL,
    ALL_OF_OTHERS, /* of all their threads, and the signals that wait for them */
};

bool kernel_attributes(pid_t pid, enum attributes which, struct digest *found);

#endif
