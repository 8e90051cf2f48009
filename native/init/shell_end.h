/* Handles the end of the shell: reports the loss of its state, and schedules the next one. */
#ifndef TVSNAP_SHELL_END_H
#define TVSNAP_SHELL_END_H

#include "basics.h"

void shell_ended(int status);
bool shell_has_pending(int signal);
void await_dying_shell(void);

#endif
