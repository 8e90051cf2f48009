/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * Added to CRIU's criu/namespaces.c when scripts/build_criu.sh builds it.
 *
 * Each sandbox has users of this machine to itself (native/launch/owners.h), so a fork has others than what it is
 * a fork of. Its user namespace lies in another, in which all have the same numbers.
 *
 * 1. A dump is to say nothing of whose it is: write_owners, in place of pb_write_one, writes $TVSNAP_FIRST_USER in place
 *    of the first user that the dump has found.
 * 2. A restore starts its first process in the namespace in which those numbers hold, whose descriptor is
 *    $TVSNAP_USERS_FD: clone_in_users, in place of clone3_with_pid_noasan. Nobody comes back out of such a namespace, so
 *    a process is started for that; it belongs to the group of this one, whose parent is to wait for it. Only there the
 *    maps can be written, too: has_users tells CRIU that they are.
 * 3. The limits of a process may be asked for by the user to whom its namespace belongs, $TVSNAP_OWNER, where this one
 *    may not (it lacks CAP_SYS_RESOURCE): become_owner, before and after.
 */
#include <linux/securebits.h>
#include "clone-noasan.h"

static int number_in(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text ? (int)strtoul(text, NULL, 10) : otherwise;
}

static int write_owners(struct cr_img *img, UsernsEntry *e)
{
	unsigned int found = 0, first = number_in("TVSNAP_FIRST_USER", 0);
	int ret;

	if (first && e->n_uid_map == 1) {
		found = e->uid_map[0]->lower_first;
		e->uid_map[0]->lower_first = first;
	}
	ret = pb_write_one(img, e, PB_USERNS);
	if (found)
		e->uid_map[0]->lower_first = found;
	return ret;
}

bool has_users(void)
{
	return number_in("TVSNAP_USERS_FD", -1) >= 0;
}

struct start {
	int (*fn)(void *);
	void *arg;
	int flags, exit_signal;
	pid_t pid, started;
};

/* In a process of its own, which shares our memory and for whose end we wait: starts the first one of the tree. */
static int start_in_users(void *arg)
{
	struct start *start = arg;
	pid_t pid;

	if (setns(number_in("TVSNAP_USERS_FD", -1), CLONE_NEWUSER)) {
		pr_perror("Can't enter the namespace of the sandbox's users");
		return 0;
	}
	pid = clone3_with_pid_noasan(start->fn, start->arg, start->flags, start->exit_signal, start->pid);
	if (pid > 0) {
		root_item->pid->real = pid;
		if (prepare_userns(root_item)) {
			kill(pid, SIGKILL);
			pid = -1;
		}
		close_pid_proc(); /* the descriptor is ours, and the note of it is not */
	}
	start->started = pid;
	return 0;
}

int clone_in_users(int (*fn)(void *), void *arg, int flags, int exit_signal, pid_t pid)
{
	const size_t size = 8 << 20;
	struct start start = { fn, arg, flags, exit_signal, pid, -1 };
	void *stack;

	if (!has_users() || !(flags & CLONE_NEWUSER))
		return clone3_with_pid_noasan(fn, arg, flags, exit_signal, pid);
	stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (stack == MAP_FAILED) {
		pr_perror("Can't have a stack");
		return -1;
	}
	if (clone(start_in_users, stack + size, CLONE_VM | CLONE_VFORK | CLONE_PARENT | SIGCHLD, &start) < 0)
		pr_perror("Can't start a process");
	munmap(stack, size);
	prctl(PR_SET_DUMPABLE, 1); /* which is forgotten where another namespace is entered */
	return start.started;
}

int become_owner(bool owner)
{
	static int bits;
	int user = number_in("TVSNAP_OWNER", 0);
	int signal;

	if (!user)
		return 0;
	/* All capabilities are kept; but the kernel forgets who is to be killed with whom, and that /proc is ours to read. */
	if (prctl(PR_GET_PDEATHSIG, &signal) || (owner && (bits = prctl(PR_GET_SECUREBITS)) < 0) ||
	    (owner && prctl(PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP)) ||
	    syscall(__NR_setresuid, -1, owner ? user : (int)getuid(), -1) || (!owner && prctl(PR_SET_SECUREBITS, bits)) ||
	    prctl(PR_SET_DUMPABLE, 1) || prctl(PR_SET_PDEATHSIG, signal)) {
		pr_perror("Can't become user %u", owner ? (unsigned int)user : getuid());
		return -1;
	}
	return 0;
}
