/* What the processes of ours in a sandbox (PID 1 and the idle shell) are, seen and set from outside.
 *
 * Whatever runs in a sandbox may lie, and with it the shell that says that nothing has changed. So nobody takes its word:
 * `rewind_note` takes down what a process is while it stands still, and `rewind_to` makes it that again after a
 * call that is said to have changed nothing. What can be set is set: memory and where it lies, registers. What cannot is
 * compared: mappings of files, pages of read-only files that are the process' own, descriptors, credentials, signal
 * handlers, limits, terminals. Where any of that differs, the process is another, and so is the state.
 *
 * A library for Python (rewind.py). What stops processes lets go of them in the same thread, as ptrace(2) wants it; where
 * that fails, the kernel does when the thread ends. x86-64 only: elsewhere there is no evidence. */
#ifndef TVSNAP_REWIND_REWIND_H
#define TVSNAP_REWIND_REWIND_H

#include <stddef.h>

struct note;

#define EXPORTED __attribute__((visibility("default"))) /* all else is hidden from the program that loads it */

EXPORTED struct note *rewind_new(void);
EXPORTED int rewind_note(struct note *note, const int *pids, int count, char *text, size_t room);
EXPORTED int rewind_to(struct note *note, char *text, size_t room);
EXPORTED int rewind_holds(const struct note *note); /* whether the thread has not let go of a process, and has to end */
EXPORTED void rewind_free(struct note *note);

#endif
