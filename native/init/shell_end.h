/* The end of the shell: what is lost with it, who is told, and when the next one is due. */
#ifndef TVSNAP_SHELL_END_H
#define TVSNAP_SHELL_END_H

#include "basics.h"

void shell_ended(int status);
bool shell_has_pending(int signal);
void await_dying_shell(void);

#endif
