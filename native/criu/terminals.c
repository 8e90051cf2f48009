/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Added to CRIU's criu/tty.c when scripts/build_criu.sh builds it.
 *
 * 1. Terminals of processes that lead no session. A process has its controlling terminal from the process that forked
 *    it, and there is no other way to one. CRIU gives a session leader its terminal when all processes are there, so
 *    that all others come back without: `ps` leaves them out, /dev/tty fails, and a job-control shell that is not the
 *    leader cannot stop its jobs. Here masters of pseudoterminals are opened before anything is forked, and a leader
 *    takes its terminal before it forks. open_masters is called after open_transport_socket, and lead_session in place
 *    of setsid. Terminals get their size there, too: CRIU sets it when programs have them, which then get a SIGWINCH.
 *
 * 2. /dev/tty: such a descriptor is one of the terminal that was the controlling one of whoever opened it. CRIU takes all
 *    of them for the same. Here each is opened again, before anything is forked, by a process that leads a session with
 *    that very terminal, and that ends then. See current_driver.
 */
#include <sched.h>
#include <sys/wait.h>

/* Tells tvsnap that this CRIU has them, and those of the other files here. */
extern const char tvsnap_additions[];
const char tvsnap_additions[] = "tvsnap-additions: terminals, owners, queues, roots, watches, pages, locks, timers, held, mappings";

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif
#ifndef TIOCGDEV
#define TIOCGDEV _IOR('T', 0x32, unsigned int)
#endif

/* Of TtyInfoEntry: the terminal that is open as /dev/tty, beyond what CRIU numbers. MAX_TTYS is greater by as many. */
#define CURRENT_INDEX 1100

static int current_index(int fd, const struct fd_parms *p)
{
	unsigned int device;

	if (ioctl(fd, TIOCGDEV, &device)) {
		pr_perror("A terminal that is open as /dev/tty has hung up");
		return INDEX_ERR;
	}
	device = (device & 0xff) | (device >> 12 & 0xfff00); /* the minor number, which is that of the slave */
	if (device <= MAX_PTY_INDEX)
		return CURRENT_INDEX + device;
	pr_err("Index %u of /dev/tty is too big\n", device);
	return INDEX_ERR;
}

static int open_current(struct tty_info *info)
{
	int fd = fdstore_get(info->fdstore_id);

	if (fd < 0 || !rst_file_params(fd, info->tfe->fown, info->tfe->flags))
		return fd;
	close(fd);
	return -1;
}

/* In place of ctty_driver. */
static struct tty_driver current_driver = {
	.type = TTY_TYPE__CTTY,
	.name = "current",
	.fd_get_index = current_index,
	.open = open_current,
};

struct opening {
	struct tty_info *info;
	int master, fd;
};

/* In a process of its own, which shares our memory and descriptors, and for whose end we wait. */
static int open_as_leader(void *arg)
{
	struct opening *opening = arg;
	int slave = ioctl(opening->master, TIOCGPTPEER, O_RDWR | O_NOCTTY);

	if (slave < 0 || setsid() < 0 || tty_set_sid(slave))
		pr_perror("Can't have a controlling terminal");
	else
		opening->fd = open_tty_reg(opening->info->reg_d, opening->info->tfe->flags);
	close_safe(&slave);
	return 0;
}

static int open_current_tty(struct tty_info *info, int master)
{
	const size_t size = 1 << 20;
	struct opening opening = { info, master, -1 };
	void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	if (stack == MAP_FAILED || unlock_pty(master))
		return -1;
	pid = clone(open_as_leader, stack + size, CLONE_VM | CLONE_VFORK | CLONE_FILES, &opening); /* ends without a signal */
	if (pid < 0 || waitpid(pid, NULL, __WALL) != pid)
		pr_perror("Can't start a process");
	munmap(stack, size);
	if (opening.fd < 0)
		return -1;
	info->fdstore_id = fdstore_add(opening.fd);
	close(opening.fd);
	return info->fdstore_id < 0 ? -1 : 0;
}

/* Opens each /dev/tty. They stay in the store until their processes have them, so that their terminals do not hang up. */
static int open_current_ttys(void)
{
	struct tty_info *info, *master;
	int fd, ret;

	list_for_each_entry(info, &all_ttys, list) {
		if (info->driver != &current_driver)
			continue;
		fd = -1;
		list_for_each_entry(master, &all_ttys, list) {
			if (is_pty(master->driver) && tty_is_master(master) &&
			    master->tie->pty->index == tty_get_index(info->tie->id) - CURRENT_INDEX)
				fd = fdstore_get(master->fdstore_id);
		}
		ret = fd < 0 ? -1 : open_current_tty(info, fd);
		close_safe(&fd);
		if (ret) {
			pr_err("Can't open /dev/tty (%#x)\n", info->tfe->id);
			return -1;
		}
	}
	return 0;
}

/* Gives a terminal its size while nobody has it: the kernel tells a foreground process group of each change (SIGWINCH). */
static int size_terminal(int master, const WinsizeEntry *size)
{
	struct winsize w = {
		.ws_row = size->ws_row,
		.ws_col = size->ws_col,
		.ws_xpixel = size->ws_xpixel,
		.ws_ypixel = size->ws_ypixel,
	};

	if (!ioctl(master, TIOCSWINSZ, &w))
		return 0;
	pr_perror("Can't size a terminal");
	return -1;
}

/* Opens the masters that processes hold, in the root task, and leaves them where pty_open_ptmx_index finds them. */
int open_masters(void)
{
	struct tty_info *info;
	int master;

	if (current->parent)
		return 0;
	list_for_each_entry(info, &all_ttys, list) {
		if (!is_pty(info->driver) || !tty_is_master(info) || info->fdstore_id >= 0)
			continue;
		master = pty_open_ptmx_index(info->reg_d, info, info->tfe->flags);
		if (master < 0)
			return -1;
		info->fdstore_id = -1;
		if (!info->tie->winsize || !size_terminal(master, info->tie->winsize))
			info->fdstore_id = fdstore_add(master);
		close(master);
		if (info->fdstore_id < 0)
			return -1;
	}
	return open_current_ttys();
}

/*
 * Takes the terminal of the session that the caller leads. The slave stays open, in the store, until CRIU has opened it
 * again: a terminal that nobody has open is nobody's controlling terminal.
 */
static int take_terminal(struct tty_info *info)
{
	int master, slave, ret = -1;

	master = fdstore_get(info->fdstore_id);
	if (master < 0)
		return -1;
	if (unlock_pty(master))
		goto out;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
	if (slave < 0) {
		pr_perror("Can't open the slave of pty %d", info->tie->pty->index);
		goto out;
	}
	if (!tty_set_sid(slave) && fdstore_add(slave) >= 0)
		ret = 0;
	close(slave);
out:
	close(master);
	return ret;
}

pid_t lead_session(void)
{
	pid_t sid = setsid();
	struct tty_info *info;

	if (sid < 0)
		return sid;
	list_for_each_entry(info, &all_ttys, list) {
		if (is_pty(info->driver) && tty_is_master(info) && info->fdstore_id >= 0 && info->tie->sid == sid)
			return take_terminal(info) ? -1 : sid;
	}
	return sid;
}
