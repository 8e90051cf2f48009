/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Added to CRIU's criu/file-lock.c when scripts/build_criu.sh builds it.
 *
 * A process loses all its locks of fcntl on a file when it closes any descriptor of that file. CRIU maps files by
 * descriptors that it closes then, after it has set the locks: a file that is locked and mapped, as SQLite has its index
 * of a write-ahead log, comes back unlocked. Here a process sets these locks once more when all is mapped: prepare_locks
 * tells the restorer which, and lock_again, which scripts/build_criu.sh adds to it, does that.
 */
#include "restorer.h"
#include "rst-malloc.h"

int prepare_locks(int pid, struct task_restore_args *ta)
{
	struct file_lock_rst *lr;
	struct restore_lock *lock;

	ta->locks = (struct restore_lock *)rst_mem_align_cpos(RM_PRIVATE);
	ta->locks_n = 0;
	if (!opts.handle_file_locks)
		return 0;
	list_for_each_entry(lr, &file_lock_list, l) {
		if (lr->fle->pid != pid || !(lr->fle->flag & FL_POSIX))
			continue;
		lock = rst_mem_alloc(sizeof(*lock), RM_PRIVATE);
		if (!lock)
			return -1;
		*lock = (struct restore_lock){ .fd = lr->fle->fd,
					       .lock = { .l_type = lr->fle->type,
							 .l_whence = SEEK_SET,
							 .l_start = lr->fle->start,
							 .l_len = lr->fle->len } };
		ta->locks_n++;
	}
	return 0;
}
