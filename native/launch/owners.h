/* Users of this machine that a sandbox has to itself. The kernel counts much for each user (pipes, descriptors in flight,
 * inotify instances, pending signals): who shares none with others takes none from them.
 *
 * On disk, files of images and layers belong to one range of users, whoever uses them. A sandbox's mounts show them as
 * those of its own range, and its user namespace lies in another, in which that range has the numbers on disk: so nothing
 * inside tells one range from another. Groups are the same everywhere, for the kernel counts nothing for them. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Makes a user namespace that belongs to `owner`, with maps of its users and groups as /proc/PID/uid_map takes them.
 *
 * Returns its descriptor; -1 if that fails. */
int open_namespace(uid_t owner, const char *users, const char *groups);

/* Makes a user namespace in which `count` users from `first` on are those from `shown` on of this machine, while groups
 * are what they are; and root is root, to whom an overlay's own entries belong. It belongs to `owner`: what the kernel
 * counts for a user of it or of one below, it counts for that user, too.
 *
 * Returns its descriptor; -1 if that fails. */
int open_users(uid_t owner, unsigned long first, unsigned long shown, unsigned long count);

/* Returns the owner of the user namespace in which that of a process lies. */
uid_t owner_of_users(const char *pid);

/* Mounts a directory anew, attached nowhere, with other owners.
 *
 * directory: its descriptor, which is that of the new mount afterwards.
 * users: what open_users returned; the first ones own the files on disk.
 * Returns whether that went well: a kernel before 5.12, and some file systems, do not know how. */
bool show_owners(int directory, int users);

/* Attaches what show_owners has mounted to an existing directory; returns whether that went well. */
bool attach(int directory, const char *at);
