/* What calls can change of a process while it sleeps, so that neither its life nor its processor time tells of it.
 *
 * SERVING: only its locks are looked at; SHELL: of an idle shell, those open files that it does not have by itself. For any
 * thread: the backend `local` looks from within its own process (native/look), others by the census.
 *
 * HOLDS is a digest (hash.h), or `?` where part of what it is to stand for cannot be seen, as where the first thread of a process
 * has ended and others go on. It covers
 *   - scheduling (policy, priorities, slice, flags), input and output priority, autogroup, limits, the memory killer's
 *     score, the filter of core dumps, name, login id, tracer, memory policy, signals not yet taken; what security modules
 *     keep (/proc/PID/attr); of each thread;
 *   - each descriptor: what it leads to, position, flags, locks and leases, who is signalled of it; of a deleted file or one in memory its size
 *     and times, and its seals; of a terminal its modes, speeds, size, foreground group and what waits to be read; of a pipe
 *     its size, mode and owner; of a timer when it rings;
 *   - all memory of its own: anonymous pages by address and content, and what is mapped of shared memory.
 * LOCKS is a digest of the locks and leases alone: of processes that run by themselves, such as a database's server.
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
