/* Makes `ps` and `pgrep -f` show a plain name for our processes. */
#ifndef TVSNAP_COMMAND_LINE_H
#define TVSNAP_COMMAND_LINE_H

#include "users.h"

char **take_arguments(int argc, char **argv);
void shorten_command_line(pid_t pid, const struct user *owner);

#endif
