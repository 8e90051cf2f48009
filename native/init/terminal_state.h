/* What a terminal is set to. */
#ifndef TVSNAP_TERMINAL_STATE_H
#define TVSNAP_TERMINAL_STATE_H

#include "basics.h"

struct stat;

uint64_t terminal_state(uint64_t hash, int fd);
bool is_stopped(int slave);
bool is_terminal(const struct stat *st);
uint64_t times_set(const struct stat *st);

#endif
