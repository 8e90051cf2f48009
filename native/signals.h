/* Resets a program's signal handling to the defaults. */
#ifndef TVSNAP_SIGNALS_H
#define TVSNAP_SIGNALS_H

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* By the system call: a C library reserves some signals for itself, and which ones depends on the library. */
static inline void reset_signals(void) {
    enum { SIGNALS = 64, MASK_BYTES = 8 };
    static const struct {
        uint64_t handler, flags, restorer, mask;
    } usual;
    static const uint64_t none;
    for (int number = 1; number <= SIGNALS; number++) /* fails for two */
        syscall(SYS_rt_sigaction, number, &usual, (void *)0, MASK_BYTES);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, (void *)0, MASK_BYTES);
}

#endif
