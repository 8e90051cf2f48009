/* The shell's terminal: its input, its output, and its foreground program. */
#ifndef TVSNAP_TERMINAL_H
#define TVSNAP_TERMINAL_H

#include "basics.h"

struct client;

enum { TYPING_LIMIT = 65536 }; /* bytes of keys waiting for the terminal, beyond which no more are read */

void type_keys(const void *keys, size_t length);
void type_on(void);
void read_terminal(void);
bool has_seen_all(const struct client *c);
void show_terminal(int client);
void put_terminal_back(const void *shown, size_t length, uint64_t count, unsigned sequence);
bool shell_has_terminal(void);
void leave_prompt(void);
void foreground_name(char *out, size_t room);

#endif
