/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * Added to CRIU's criu/fsnotify.c when scripts/build_criu.sh builds it.
 *
 * CRIU knows a watch of inotify by a handle of the file, which no overlay opens. Where $TVSNAP_WATCHES is set, who asks for
 * the dump notes the watches himself, and puts them back into the fork (tvsnap/sandboxes/repairs/watches.py): then an
 * instance is dumped without them, and restored empty. parse_watches stands in place of parse_fdinfo.
 *
 * Who watches a file is told that CRIU opens it, or has it open until after all is restored: the root directory, and in a
 * dump what is mapped of files that lie on no block device. Here these are opened by O_PATH, of which nobody is told;
 * is_on_overlay tells that a file is none of those that must be opened otherwise.
 */
#include <sys/vfs.h>

#ifndef OVERLAYFS_SUPER_MAGIC
#define OVERLAYFS_SUPER_MAGIC 0x794c7630
#endif

static int parse_watches(int lfd, const struct fd_parms *p, InotifyFileEntry *ie)
{
	if (!getenv("TVSNAP_WATCHES"))
		return parse_fdinfo(lfd, FD_TYPES__INOTIFY, ie);
	if (p->pid == getpid()) { /* a message to a Unix socket holds it, and maybe no process: nobody would note it */
		pr_err("An instance of inotify is on its way\n");
		return -1;
	}
	return 0;
}

/* Whether a name in a directory, a link of /proc/PID/map_files, leads to a file on an overlay. */
bool is_on_overlay(int directory, const char *name)
{
	char path[64];
	struct statfs about;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", directory, name);
	return !statfs(path, &about) && about.f_type == OVERLAYFS_SUPER_MAGIC;
}
