/* Restricts what a sandbox may do: its view of /proc, capabilities and a filter of system calls. */
#ifndef TVSNAP_CONFINE_H
#define TVSNAP_CONFINE_H

#include "basics.h"

void protect_proc(void);
void drop_capabilities(void);
void set_resource_limits(void);
bool number_processes(pid_t last);
void filter_system_calls(bool looks_itself);

#endif
