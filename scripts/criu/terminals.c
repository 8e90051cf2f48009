/*
 * Added to CRIU's criu/tty.c when scripts/build_criu.sh builds it: terminals of processes that are no session leaders.
 *
 * A process has its controlling terminal from the process that forked it, and there is no other way to one. CRIU gives
 * a session leader its terminal when all processes are there, so that all others come back without: `ps` leaves them
 * out, /dev/tty fails, and a job-control shell that is not the leader cannot stop its jobs. Here masters of
 * pseudoterminals are opened before anything is forked, and a leader takes its terminal before it forks.
 *
 * open_masters is called after open_transport_socket, and lead_session in place of setsid.
 */

/* Tells tvsnap that this CRIU has them. */
extern const char tvsnap_additions[];
const char tvsnap_additions[] = "tvsnap-additions: terminals";

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

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
		info->fdstore_id = fdstore_add(master);
		close(master);
		if (info->fdstore_id < 0)
			return -1;
	}
	return 0;
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
