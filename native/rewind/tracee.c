#include "tracee.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SHORTEST_US = 20, LONGEST_US = 3000000 }; /* between two checks of a process, and until it has stopped */

/* Waits for a process to stop; returns its wait status, or NONE after a time limit: if PID 1 is killed, it waits for
 * all processes in its namespace, and so for a shell that we have stopped. */
int await_stop(int pid) {
    int status;
    for (long pause = SHORTEST_US, waited = 0; waited < LONGEST_US; waited += pause, pause += pause / 2) {
        pid_t found = waitpid(pid, &status, __WALL | WNOHANG);
        if (found) return found == pid && WIFSTOPPED(status) ? status : NONE;
        struct timespec time = {pause / 1000000, pause % 1000000 * 1000};
        nanosleep(&time, NULL);
    }
    return NONE;
}

/* Records a signal for which a process has stopped, unless it is one of ours. */
void keep_signal(struct process *p, int status) {
    if (status != NONE && status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP) p->signal = WSTOPSIG(status);
}

/* Blocks signals until the process goes on, except the one that reports what it has done for us. */
static bool hold_signals(struct process *p) {
    if (ptrace(PTRACE_GETSIGMASK, p->pid, sizeof p->blocks, &p->blocks)) return false;
    uint64_t all = p->blocks | ~(UINT64_C(1) << (SIGTRAP - 1));
    return ptrace(PTRACE_SETSIGMASK, p->pid, sizeof all, &all) == 0;
}

bool stop(struct process *p, struct reason *why) {
    p->signal = 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d", p->pid);
    p->handle = (int)syscall(SYS_pidfd_open, p->pid, 0);
    p->directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    unsigned long long start = p->handle < 0 || p->directory < 0 ? 0 : start_of(p->directory);
    if (!start || (p->start && start != p->start)) return fail(why, "process %d is no more", p->pid);
    p->start = start;
    if (ptrace(PTRACE_SEIZE, p->pid, 0, 0)) return fail(why, "process %d cannot be stopped: %s", p->pid, strerror(errno));
    if (ptrace(PTRACE_INTERRUPT, p->pid, 0, 0)) return fail(why, "process %d does not stop: %s", p->pid, strerror(errno));
    int status = await_stop(p->pid);
    keep_signal(p, status);
    if (status == NONE || status >> 16 != PTRACE_EVENT_STOP || WSTOPSIG(status) != SIGTRAP)
        return fail(why, "process %d does not stand still", p->pid);
    p->memory = openat(p->directory, "mem", O_RDWR | O_CLOEXEC);
    if (p->memory < 0) return fail(why, "the memory of process %d: %s", p->pid, strerror(errno));
    return hold_signals(p) || fail(why, "the signals of process %d: %s", p->pid, strerror(errno));
}

bool set_registers(struct process *p, const struct user_regs_struct *registers) {
    struct iovec part = {(void *)registers, sizeof *registers};
    return ptrace(PTRACE_SETREGSET, p->pid, NT_PRSTATUS, &part) == 0;
}

bool get_registers(struct process *p, struct user_regs_struct *registers) {
    struct iovec part = {registers, sizeof *registers};
    return ptrace(PTRACE_GETREGSET, p->pid, NT_PRSTATUS, &part) == 0;
}

/* Whether a process waits in a system call. */
bool waits(struct process *p, const struct user_regs_struct *registers) {
    uint16_t instruction = 0;
    return (long)registers->orig_rax >= 0 && (long)registers->rax < 0 &&
           pread(p->memory, &instruction, 2, (off_t)registers->rip - 2) == 2 && instruction == 0x050f;
}

bool call(struct process *p, const struct user_regs_struct *at, long number, long a, long b, long c, long d, long *result) {
    struct user_regs_struct registers = *at;
    registers.rip -= 2; /* the instruction in which it waits */
    registers.orig_rax = (unsigned long)-1;
    registers.rax = (unsigned long)number;
    registers.rdi = (unsigned long)a;
    registers.rsi = (unsigned long)b;
    registers.rdx = (unsigned long)c;
    registers.r10 = (unsigned long)d;
    registers.r8 = (unsigned long)-1; /* of mmap: no file */
    registers.r9 = 0;
    if (!set_registers(p, &registers) || ptrace(PTRACE_SINGLESTEP, p->pid, 0, 0)) return false;
    int status = await_stop(p->pid);
    keep_signal(p, status);
    p->broken |= status == NONE;
    if (status == NONE || WSTOPSIG(status) != SIGTRAP || !get_registers(p, &registers)) return false;
    *result = (long)registers.rax;
    return registers.rip == at->rip;
}

/* Restarts a system call that our stop interrupted, if the kernel would not: some return EINTR at once. */
static void begin_again(struct process *p) {
    struct user_regs_struct registers;
    if (p->signal || p->memory < 0 || !get_registers(p, &registers) || !waits(p, &registers)) return;
    if ((long)registers.rax != -EINTR) return;
    registers.rax = registers.orig_rax;
    registers.rip -= 2;
    registers.orig_rax = (unsigned long)-1;
    set_registers(p, &registers);
}

/* Releases the processes; all are killed if one has not finished what it had to do for us. */
bool let_go(struct process *processes, int count) {
    bool broken = false;
    for (int i = 0; i < count; i++) broken |= processes[i].broken;
    for (int i = 0; i < count; i++) {
        struct process *p = &processes[i];
        if (broken) syscall(SYS_pidfd_send_signal, p->handle, SIGKILL, NULL, 0);
        else begin_again(p);
        if (p->memory >= 0) {
            ptrace(PTRACE_SETSIGMASK, p->pid, sizeof p->blocks, &p->blocks);
            close(p->memory);
        }
        if (p->directory >= 0) close(p->directory);
        if (p->handle >= 0) close(p->handle);
        p->memory = p->directory = p->handle = NONE;
        p->held = ptrace(PTRACE_DETACH, p->pid, 0, p->signal) != 0;
    }
    return !broken;
}
