/* Unread data in the pipes, fifos and sockets of processes: calls add and take data, without any process that has these
 * open having to run.
 *
 * pidfd_getfd duplicates the open file, which can then be inspected without disturbing it. The kernel requires the
 * rights for ptrace: that the real user is theirs, and with Yama that we are their ancestor. So PID 1 itself does this,
 * with the other user's ids for a moment, and not a separate program like the census.
 */
#ifndef TVSNAP_WAITING_H
#define TVSNAP_WAITING_H

#include "frames.h"

bool anything_waits(struct field shell_files, struct field processes);

#endif
