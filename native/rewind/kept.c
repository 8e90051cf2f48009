#include "kept.h"

#include <errno.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Missing in the headers of some systems, or only in the kernel's own. */
enum { GET_THREAD_AREA = 25, GET_RSEQ = 0x420f, GET_DISPATCH = 0x4211 };
enum { FIRST_AREA = 12, AREAS = 3, RSEQ_SIZE = 24, DISPATCH_SIZE = 32, IOPRIO_WHO_PROCESS = 1 };

/* Adds the output of a call, and its result, which shows whether the kernel knows the call. */
static bool add_said(struct text *to, long result, const void *said, size_t length) {
    return add(to, &result, sizeof result) && add(to, said, length);
}

static bool add_request(struct text *to, int what, int pid, long argument, size_t length) {
    char said[64] = {0};
    return add_said(to, ptrace((enum __ptrace_request)what, pid, argument, said), said, length);
}

/* Hardware breakpoints; without the register that shows why the processor stopped, which our own steps change. */
static bool add_watched(struct text *to, int pid) {
    static const int registers[] = {0, 1, 2, 3, 7};
    bool good = true;
    for (size_t i = 0; good && i < sizeof registers / sizeof *registers; i++) {
        errno = 0;
        long value = ptrace(PTRACE_PEEKUSER, pid, offsetof(struct user, u_debugreg) + (size_t)registers[i] * sizeof(long), 0);
        good = !errno && add_line(to, "debug register %d: %lx\n", registers[i], (unsigned long)value);
    }
    return good;
}

/* Whether the kernel shows syscall user dispatch. */
bool tells_of_dispatch(const struct process *p) {
    char said[DISPATCH_SIZE];
    return ptrace((enum __ptrace_request)GET_DISPATCH, p->pid, (long)sizeof said, said) == 0;
}

bool add_kept(struct text *to, const struct process *p) {
    char scheduling[64] = {0};
    long list[2] = {0, 0};
    bool good = add_watched(to, p->pid);
    for (long i = 0; i < AREAS; i++) good = good && add_request(to, GET_THREAD_AREA, p->pid, FIRST_AREA + i, 16);
    good = good && add_request(to, GET_RSEQ, p->pid, RSEQ_SIZE, RSEQ_SIZE);
    good = good && add_request(to, GET_DISPATCH, p->pid, DISPATCH_SIZE, DISPATCH_SIZE);
    good = good && add_said(to, syscall(SYS_sched_getattr, p->pid, scheduling, sizeof scheduling, 0), scheduling, sizeof scheduling);
    good = good && add_said(to, syscall(SYS_get_robust_list, p->pid, &list[0], &list[1]), list, sizeof list);
    return good && add_line(to, "ioprio %ld\n", syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, p->pid));
}
