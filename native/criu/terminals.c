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
 * 2. Lines that no program has read yet. CRIU takes whole lines out of a terminal and types them in again, which echoes
 *    them once more, also where the processes go on; a line without its Enter stays behind. Here that line is taken as
 *    well, and what is typed in again is taken as it is, without an echo. The three functions at the end stand in place
 *    of CRIU's.
 */
#include <poll.h>


/* Tells tvsnap that this CRIU has them, and those of owners.c, roots.c and watches.c. */
extern const char tvsnap_additions[];
const char tvsnap_additions[] = "tvsnap-additions: terminals, owners, roots, watches";

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

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

/* Whether a line ends with a character: its Enter, or what the terminal takes for the end of a line or of the input. */
static bool ends_line(const struct termios *t, char c)
{
	return c == '\n' || (c && (c == (char)t->c_cc[VEOF] || c == (char)t->c_cc[VEOL] ||
				   (c == (char)t->c_cc[VEOL2] && t->c_lflag & IEXTEN)));
}

/* Takes all that was typed and not read out of a terminal that reads by lines; returns how much, or -1. */
static ssize_t take_lines(int slave, struct termios *t, char *buf, size_t size)
{
	struct termios raw = *t;
	size_t off = 0;
	ssize_t n;

	while (off + 1 < size && (n = read(slave, buf + off, size - off - 1)) >= 0) {
		off += n;
		if (!n || !ends_line(t, buf[off - 1])) /* what ended it was the end of the input, which is not returned */
			buf[off++] = t->c_cc[VEOF];
	}
	raw.c_lflag &= ~ICANON;
	raw.c_cc[VMIN] = raw.c_cc[VTIME] = 0;
	if (tcsetattr(slave, TCSANOW, &raw))
		return -1;
	n = read(slave, buf + off, size - off);
	if (n > 0)
		off += n;
	return tcsetattr(slave, TCSANOW, t) ? -1 : (ssize_t)off;
}

/* Types data that `take_lines` took into a terminal, through its master, without any effect but that it is there. */
static int type_again(int master, int slave, const char *data, size_t len)
{
	struct termios t, literal;
	int i, ready, whole = 0, ends = 0;
	size_t at;

	if (tcgetattr(master, &t))
		return -1;
	literal = t;
	literal.c_iflag &= ~(ISTRIP | INLCR | IGNCR | ICRNL | IUCLC | IXON | IXOFF | PARMRK);
	literal.c_lflag &= ~(ISIG | ECHO | ECHONL);
	literal.c_cc[VERASE] = literal.c_cc[VKILL] = literal.c_cc[VWERASE] = 0;
	literal.c_cc[VREPRINT] = literal.c_cc[VLNEXT] = 0;
	for (at = 0; at < len; at++) {
		if (ends_line(&t, data[at]))
			whole = at + 1;
		if (data[at] && data[at] == (char)t.c_cc[VEOF])
			ends++;
	}
	if (tcsetattr(master, TCSANOW, &literal))
		return -1;
	if (write(master, data, len) != (ssize_t)len)
		pr_err("Not all that was typed could be typed again\n");
	/* The kernel processes it later, with the settings of that moment. */
	for (i = 0; i < 1000 && t.c_lflag & ICANON; i++) {
		if (ioctl(slave, FIONREAD, &ready) || ready >= whole - ends)
			break;
		usleep(1000);
	}
	/*
	 * Nothing tells of an unfinished line that it was processed. But a look at a terminal that has nothing to be
	 * read waits for that (n_tty_poll); behind whole lines there is nothing but to leave it time.
	 */
	if (whole < (int)len || !(t.c_lflag & ICANON)) {
		if (!whole)
			poll(&(struct pollfd){ .fd = slave, .events = POLLIN }, 1, 0);
		else
			usleep(20000);
	}
	return tcsetattr(master, TCSANOW, &t);
}

/* Prints data that was taken out of a master into the terminal again, as it is. */
static int print_again(int slave, const char *data, size_t len)
{
	struct termios t, literal;

	if (tcgetattr(slave, &t))
		return -1;
	literal = t;
	literal.c_oflag &= ~OPOST;
	if (tcsetattr(slave, TCSANOW, &literal))
		return -1;
	if (write(slave, data, len) != (ssize_t)len)
		pr_err("Not all that was printed could be printed again\n");
	return tcsetattr(slave, TCSANOW, &t);
}

static int tty_do_dump_queued_data(struct tty_dump_info *dinfo)
{
	TtyDataEntry e = TTY_DATA_ENTRY__INIT;
	struct termios t;
	ssize_t len;
	char *buf;

	if (__tty_is_master(dinfo->driver) || tcgetattr(dinfo->lfd, &t) || !(t.c_lflag & ICANON))
		return criu_do_dump_queued_data(dinfo);
	if (tty_unblock(dinfo->id, dinfo->lfd, dinfo->flags))
		return -1;
	buf = xmalloc(16384);
	if (!buf)
		return -1;
	len = take_lines(dinfo->lfd, &t, buf, 16384);
	if (len <= 0) {
		xfree(buf);
		return len;
	}
	dinfo->tty_data = buf;
	dinfo->tty_data_size = len;
	e.tty_id = dinfo->id;
	e.data.data = (void *)buf;
	e.data.len = len;
	return pb_write_one(img_from_set(glob_imgset, CR_FD_TTY_DATA), &e, PB_TTY_DATA);
}

static void __tty_do_writeback_queued_data(struct tty_dump_info *dinfo)
{
	int ret = 0;

	if (dinfo->tty_data && __tty_is_master(dinfo->driver))
		ret = print_again(dinfo->link->lfd, dinfo->tty_data, dinfo->tty_data_size);
	else if (dinfo->tty_data)
		ret = type_again(dinfo->link->lfd, dinfo->lfd, dinfo->tty_data, dinfo->tty_data_size);
	if (ret)
		pr_perror("Can't write back to tty (%#x)", dinfo->id);
	tty_reblock(dinfo->link->id, dinfo->link->lfd, dinfo->link->flags);
}

static void pty_restore_queued_data(struct tty_info *info, int fd)
{
	const ProtobufCBinaryData *data;
	int slave, ret;

	if (!info || !info->tty_data)
		return;
	data = &info->tty_data->tde->data;
	if (tty_is_master(info)) {
		ret = print_again(fd, (char *)data->data, data->len);
	} else {
		slave = ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK);
		ret = slave < 0 ? -1 : type_again(fd, slave, (char *)data->data, data->len);
		close_safe(&slave);
	}
	if (ret)
		pr_perror("Can't write to tty %#x", info->tfe->id);
}
