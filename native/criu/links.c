/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * Added to CRIU's criu/files-reg.c when scripts/build_criu.sh builds it.
 *
 * A file that was deleted while a process holds it, and that has another name still, gets a name again for as long as it
 * is dumped. The directory in which that is made has been modified then, and so says the process tree that goes on.
 * Here the directory keeps its times. link_quietly stands in place of linkat_hard, and unlink_quietly of unlinkat,
 * where a dump calls them.
 */

/* Puts the path of the directory in which something is in `parent`, and its times in `times`; false if it has none. */
static bool times_of_parent(int root, const char *path, char *parent, struct timespec *times)
{
	const char *slash = strrchr(path, '/');
	struct stat about;

	if (!slash || slash - path >= PATH_MAX)
		return false;
	memcpy(parent, path, slash - path);
	parent[slash - path] = 0;
	if (fstatat(root, parent, &about, AT_SYMLINK_NOFOLLOW))
		return false;
	times[0] = about.st_atim;
	times[1] = about.st_mtim;
	return true;
}

int link_quietly(int odir, char *opath, int ndir, char *npath, uid_t uid, gid_t gid, int flags)
{
	char parent[PATH_MAX];
	struct timespec times[2];
	bool known = times_of_parent(ndir, npath, parent, times);
	int ret = linkat_hard(odir, opath, ndir, npath, uid, gid, flags), error = errno;

	if (!ret && known && utimensat(ndir, parent, times, AT_SYMLINK_NOFOLLOW))
		pr_pwarn("Can't set the times of %s", parent);
	errno = error;
	return ret;
}

void unlink_quietly(int root, char *path)
{
	char parent[PATH_MAX];
	struct timespec times[2];
	bool known = times_of_parent(root, path, parent, times);

	if (!unlinkat(root, path, 0) && known && utimensat(root, parent, times, AT_SYMLINK_NOFOLLOW))
		pr_pwarn("Can't set the times of %s", parent);
}
