/* Stopped processes: their registers, and system calls that they make for us. */
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

/* A page of memory, and its old contents. */
struct page {
    uint64_t address;
    const char *data;
};

struct process {
    int pid;
    unsigned long long start;      /* when it began, since its id may have been reused; 0 until that is known */
    int handle, directory, memory; /* while it is stopped: its pidfd, /proc/PID, and `mem` there; else NONE */
    int signal;      /* a signal that it stopped for, which is delivered when it goes on; 0 for none */
    uint64_t blocks; /* signals that it blocks when it goes on: while it is stopped, none must interrupt what we do */
    uint64_t ignores; /* which of the first 31 signals it ignored when it was last inspected */
    bool broken;     /* it did not return from what it does for us */
    bool held;       /* it was not released */
    bool exact;      /* recorded for rewind_see: with the positions of open files */
    const struct process *first; /* PID 1 of the sandbox, which may be this one */
    uint64_t commands; /* of PID 1: the inode of its file in memory with the shell's commands; 0 until that is known */
    struct user_regs_struct registers;
    char xstate[MOST_XSTATE];
    size_t xstate_length;
    uint64_t blocked; /* signals that it blocked when it was recorded */
    struct text facts;
    struct layout was;
    char *data; /* the contents of its own pages, when they were last saved */
    size_t data_room;
    /* When it was last inspected: */
    struct user_regs_struct at;
    uint64_t heap_end;
    struct text facts_now;
    struct layout is;
    struct page *others; /* with other contents */
    size_t other_count, other_room;
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
