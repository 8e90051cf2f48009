/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Added to CRIU's criu/pie/restorer.c when scripts/build_criu.sh builds it; see locks.c.
 */
static int lock_again(struct task_restore_args *args)
{
	int i, ret = 0;

	for (i = 0; i < args->locks_n && !ret; i++)
		ret = sys_fcntl(args->locks[i].fd, F_SETLK, (long)&args->locks[i].lock);
	return ret;
}

/* Makes what is left of an absolute timer's time the time itself; CRIU would leave out the fractions of a second. */
static void add_time(struct timespec *left, const struct timespec *now)
{
	left->tv_sec += now->tv_sec;
	left->tv_nsec += now->tv_nsec;
	if (left->tv_nsec >= 1000000000) {
		left->tv_nsec -= 1000000000;
		left->tv_sec++;
	}
}
