/* Makes `set -x` show a command behind one `+`, as in a shell at a terminal.
 *
 * Bash repeats the first character of PS4 for each `eval` around a command. It counts them in `indirection_level`, and
 * our startup file has two of its own around each command, and PROMPT_COMMAND.
 */
#ifndef TVSNAP_TRACE_DEPTH_H
#define TVSNAP_TRACE_DEPTH_H

#include "users.h"

void forget_nesting(pid_t shell, const struct user *owner);

#endif
