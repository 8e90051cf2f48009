/* Processes that are stopped: their registers, and system calls that they make for us. */
#ifndef TVSNAP_REWIND_TRACEE_H
#define TVSNAP_REWIND_TRACEE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/user.h>

#include "layout.h"
#include "text.h"

enum { MOST_XSTATE = 16384 };
enum { NONE = -1 };

struct process {
    int pid;
    unsigned long long start; /* when it began: its number may be another's by now */
    int handle, memory;       /* while it is stopped: a descriptor of it, and its /proc/PID/mem; else NONE */
    int signal;      /* that it was about to be delivered when it stopped: delivered when it goes on; 0 for none */
    uint64_t blocks; /* signals that it blocks, once it goes on: while it is stopped, none is to come amid what we do */
    bool broken;     /* it did not come back from what it does for us */
    struct user_regs_struct registers;
    char xstate[MOST_XSTATE];
    size_t xstate_length;
    uint64_t blocked; /* signals that it blocked when it was noted */
    struct text facts;
    struct layout was;
};

int await_stop(int pid);
void keep_signal(struct process *p, int status);
bool stop(struct process *p, struct reason *why);
bool let_go(struct process *processes, int count);
bool set_registers(struct process *p, const struct user_regs_struct *registers);
bool get_registers(struct process *p, struct user_regs_struct *registers);
bool waits(struct process *p, const struct user_regs_struct *registers);
bool call(struct process *p, const struct user_regs_struct *at, long number, long a, long b, long c, long d, long *result);

#endif
