/* The persistent shell: its start, its mode, its commands. The other end is rc. */
#ifndef TVSNAP_SHELL_H
#define TVSNAP_SHELL_H

#include "basics.h"
#include "protocol.h"

enum { RESTART_US = 100000 }; /* between two attempts to start a shell */

void read_rc(void);
bool set_mode(enum shell_mode mode);
bool start_shell(void);
void restart_shell(void);
void want_shell(void);
void close_shell_ends(void);
void give_shell_up(void);
void feed_command(void);
void to_prompt(void);

#endif
