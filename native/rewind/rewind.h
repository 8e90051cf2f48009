/* Inspects and restores our own processes in a sandbox (PID 1 and the idle shell) from outside.
 *
 * Programs in a sandbox may lie, and so may the shell when it reports that nothing has changed. So its report is not
 * trusted: `rewind_note` records the state of a stopped process, and `rewind_to` restores it after a call that
 * claims to have changed nothing. Memory, its layout and registers are restored. The rest is compared: mappings of
 * files, the process' own pages of read-only files, descriptors, credentials, signal handlers, limits, terminals. If
 * any of that differs, the process has changed, and so has the state.
 *
 * A library for Python (rewind.py). Processes are released in the thread that stopped them, as ptrace(2) requires;
 * if that fails, the kernel releases them when the thread ends. x86-64 only: on other machines there is no evidence. */
#ifndef TVSNAP_REWIND_REWIND_H
#define TVSNAP_REWIND_REWIND_H

#include <stddef.h>
#include <stdint.h>

struct note;

/* The memory of a stopped process, and its registers in the order of user_regs_struct. */
struct rewind_memory {
    const uint64_t *own; /* addresses of its own pages, and of the vDSO's, in ascending order */
    size_t owns;
    const char *contents; /* of these pages */
    const unsigned long *registers_were, *registers;
};

#define EXPORTED __attribute__((visibility("default"))) /* all other symbols are hidden */

EXPORTED struct note *rewind_new(void);
EXPORTED int rewind_note(struct note *note, const int *pids, int count, char *text, size_t room);
EXPORTED int rewind_to(struct note *note, char *text, size_t room);
EXPORTED int rewind_frame(struct note *note, const int *pids, int count, char *text, size_t room);
EXPORTED const unsigned long *rewind_registers(const struct note *note, int process);
EXPORTED int rewind_see(struct note *note, struct rewind_memory *memory, char *text, size_t room);
EXPORTED int rewind_go_on(struct note *note);
EXPORTED int rewind_holds(const struct note *note); /* whether the thread has not released a process, and has to end */
EXPORTED void rewind_free(struct note *note);

#endif
