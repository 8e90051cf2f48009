/* The source of an action's output: the FIFO that the shell opens, and what jobs go on writing after their call. */
#ifndef TVSNAP_OUTPUT_H
#define TVSNAP_OUTPUT_H

#include <poll.h>

#include "basics.h"

bool make_output_fifo(void);
void touch_output(void);
bool keep_output_fifo(void);
void open_output(void);
void renew_output(void);
void leave_to_drain(int fd);
void read_drains(const struct pollfd *polled, int count);
bool drain_output(void);

#endif
