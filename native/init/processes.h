/* The processes of the action: which ones it started, whether they sleep, and how they are killed. */
#ifndef TVSNAP_PROCESSES_H
#define TVSNAP_PROCESSES_H

#include "basics.h"

void remember_processes(void);
size_t signal_new(int signal);
void kill_new(void);
uint64_t sleeping_time(void);

#endif
