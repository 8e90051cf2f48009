/* What cannot be done ends the program, with the reason. */
#pragma once

#include <stdbool.h>

_Noreturn void fail(const char *what);
void check(bool ok, const char *what);
void write_file(const char *path, const char *text);
