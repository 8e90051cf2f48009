/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * Added to CRIU's criu/sk-unix.c when scripts/build_criu.sh builds it.
 *
 * A Unix socket whose absolute name was bound by a process with a root directory of its own (chroot) is bound again in the
 * root of the whole tree, where another directory has that name, or none. Here a dump notes the process's root, in the
 * field for the directory of relative names, and a restore makes that the root before it uses the name.
 */
#include <linux/openat2.h>
#include <sys/syscall.h>

/* Called when a socket is dumped by the process `pid` that has it, whose file is `file`; where its name is relative, CRIU
 * notes the directory. A process that went to its root later knows the file by no such name: that is left to CRIU. */
static void note_root(pid_t pid, const char *name, const struct stat *file, char **name_dir)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	char path[64], root[PATH_MAX];
	struct stat found;
	ssize_t length;
	int fd, at;

	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	length = readlink(path, root, sizeof(root) - 1);
	if (name[0] != '/' || length < 2 || length == sizeof(root) - 1) /* 1: the root of all */
		return;
	root[length] = 0;
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	at = fd < 0 ? -1 : (int)syscall(SYS_openat2, fd, name, &how, sizeof(how));
	if (at >= 0 && !fstat(at, &found) && found.st_dev == file->st_dev && found.st_ino == file->st_ino)
		*name_dir = xstrdup(root);
	if (at >= 0)
		close(at);
	if (fd >= 0)
		close(fd);
}

/* Called in the tree's root, before the socket is bound, connected to, or its old file removed. */
static int go_to_name(const char *name, const char *directory)
{
	if (chdir(directory))
		return -1;
	return name[0] == '/' ? chroot(".") : 0;
}
