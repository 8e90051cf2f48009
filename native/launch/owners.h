/* Users of this machine that belong to one sandbox only. The kernel limits many things by user (pipes, descriptors
 * in flight, inotify instances, pending signals): a sandbox that shares no user with others takes none of that from
 * them.
 *
 * On disk, files of images and layers belong to one range of users, whoever uses them. A sandbox's mounts show them
 * as those of its own range, and its user namespace is inside another one, in which that range has the ids on disk:
 * so a range cannot be recognised from inside. Groups are the same everywhere, since the kernel limits nothing by
 * group. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Makes a user namespace that belongs to `owner`, with maps of its users and groups in the format of /proc/PID/uid_map.
 *
 * Returns its descriptor; -1 on failure. */
int open_namespace(uid_t owner, const char *users, const char *groups);

/* Makes a user namespace in which `count` users from `first` on are those from `shown` on of this machine, while
 * groups are unchanged; and root is root, which owns an overlay's own entries. It belongs to `owner`: what the
 * kernel counts for its users, and for those of namespaces below it, it also counts for `owner`.
 *
 * Returns its descriptor; -1 on failure. */
int open_users(uid_t owner, unsigned long first, unsigned long shown, unsigned long count);

/* Returns the owner of the parent of a process' user namespace. */
uid_t owner_of_users(const char *pid);

/* Mounts a directory again, detached, with other owners.
 *
 * directory: its descriptor, which becomes that of the new mount.
 * users: from open_users; the first ones own the files on disk.
 * Returns whether that succeeded: kernels before 5.12, and some file systems, do not support it. */
bool show_owners(int directory, int users);

/* Attaches a mount of show_owners to an existing directory; returns whether that succeeded. */
bool attach(int directory, const char *at);
