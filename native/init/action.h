/* The beginning and the end of the current action. */
#ifndef TVSNAP_ACTION_H
#define TVSNAP_ACTION_H

#include "guest.h"

void cancel_action(void);
void begin_action(enum action_kind kind, int client, int64_t timeout_us, size_t limit);
void finish_action(void);
void refuse_action(const char *why, int error);
void forget_action(void);

#endif
