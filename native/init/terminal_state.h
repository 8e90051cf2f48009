/* The settings of a terminal. */
#ifndef TVSNAP_TERMINAL_STATE_H
#define TVSNAP_TERMINAL_STATE_H

#include "basics.h"
#include "hash.h"

struct stat;

void take_terminal(struct hash *h, int fd);
bool is_stopped(int slave);
bool is_terminal(const struct stat *st);
void take_times_set(struct hash *h, const struct stat *st);

#endif
