/* What every other file needs: complete writes, the clock. It depends on nothing of ours. */
#ifndef TVSNAP_BASICS_H
#define TVSNAP_BASICS_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "error_text.h"

_Noreturn void die(const char *what);
int64_t now_us(void);
void set_nonblocking(int fd);
bool write_all(int fd, const void *data, size_t length);
ssize_t write_now(int fd, const char *data, size_t length);

#endif
