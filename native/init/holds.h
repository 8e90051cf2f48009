/* What calls can change of a sleeping process without affecting its life or its processor time.
 *
 * SERVING: only its locks; SHELL: those open files of an idle shell that it does not always have. Any thread may use
 * this: the backend `local` inspects processes from within its own process (native/look), other backends by the census.
 *
 * HOLDS is a digest (hash.h), or `?` if part of what it has to cover cannot be seen, for example if the main thread of
 * a process has ended and others go on. It covers
 *   - of each thread: scheduling (policy, priorities, slice, flags), I/O priority, autogroup, limits, the OOM killer's
 *     score, the core dump filter, name, login id, tracer, memory policy, pending signals; the attributes of security
 *     modules (/proc/PID/attr);
 *   - each descriptor: its target, position, flags, locks and leases, and who is signalled; of a deleted file or one in
 *     memory its size, times and seals; of a terminal its modes, speeds, size, foreground group and unread data; of a
 *     pipe its size, mode and owner; of a timer when it expires;
 *   - all its own memory: anonymous pages by address and content, and mapped shared memory.
 * LOCKS is a digest of only the locks and leases: for processes that run by themselves, such as a database's server.
 */
#ifndef TVSNAP_HOLDS_H
#define TVSNAP_HOLDS_H

#include "basics.h"
#include "hash.h"

enum holder { OTHER, SERVING, SHELL };

struct holding;

struct holding *new_holding(int64_t end);
bool find_holds(struct holding *h, pid_t pid, enum holder kind, struct digest *held, struct digest *locked);
bool is_late(const struct holding *h);

#endif
