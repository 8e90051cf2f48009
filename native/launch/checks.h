/* Failures end the program and report the reason. */
#pragma once

#include <stdbool.h>

extern int complaints, failure; /* the descriptor for the reason, and the exit status */

_Noreturn void fail(const char *what);
void check(bool ok, const char *what);
void write_file(const char *path, const char *text);
/* Reads the beginning of a file, as a text of less than `size` bytes. */
void read_file(const char *path, char *text, unsigned size);
