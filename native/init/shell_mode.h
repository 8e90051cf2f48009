/* Transitions between the shell's modes. */
#ifndef TVSNAP_SHELL_MODE_H
#define TVSNAP_SHELL_MODE_H

#include <stdbool.h>

#include "protocol.h"

bool may_follow(enum shell_mode from, enum shell_mode to);
const char *mode_name(enum shell_mode mode);

#endif
