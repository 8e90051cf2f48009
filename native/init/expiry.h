/* When a timerfd expires next. */
#ifndef TVSNAP_EXPIRY_H
#define TVSNAP_EXPIRY_H

#include "basics.h"

bool find_expiry(pid_t pid, const char *number, uint64_t *expiry);

#endif
