/* What waits to be read in the pipes, fifos and sockets of processes: calls add to it and take from it, and nobody who
 * has it open needs to run for that.
 *
 * pidfd_getfd gives us the same open file, at which we can look without disturbing it. The kernel asks for the rights
 * that ptrace needs: that the real user is theirs, and where Yama is in force that we are their ancestor. So this is
 * done by PID 1 itself, in the other user's name for a moment, and not by a program of its own, as the census is.
 */
#ifndef TVSNAP_WAITING_H
#define TVSNAP_WAITING_H

#include "frames.h"

bool anything_waits(struct field shell_files, struct field processes);

#endif
