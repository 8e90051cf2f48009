/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Added to CRIU's criu/tty.c, after terminals.c, when scripts/build_criu.sh builds it: what waits at terminals.
 *
 * 1. Lines that no program has read yet. CRIU takes whole lines out of a terminal and types them in again, which echoes
 *    them once more, also where the processes go on; a line without its Enter stays behind. Here that line is taken as
 *    well, and what is typed in again is taken as it is, without an echo. The functions at the end stand in place of
 *    CRIU's. They also see to it that a master in packet mode is read, and its slave printed to, without it.
 *
 * 2. Terminals of which no process has the slave open under its own name: programs have it as /dev/tty only, or have
 *    ended. CRIU forgets what waits there, and that a slave was ever open: reading the master fails then, once all
 *    has been read. Here a dump opens the slave for a moment, and so does a restore, if it has to. That slave is
 *    called lent.
 */
#include <poll.h>

#ifndef TIOCGPKT
#define TIOCGPKT _IOR('T', 0x38, int)
#endif

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
	ssize_t n;
	int i;

	if (tcgetattr(slave, &t))
		return -1;
	literal = t;
	literal.c_oflag &= ~OPOST;
	if (tcsetattr(slave, TCSANOW, &literal))
		return -1;
	/* The kernel moves it on later, which makes room; and it has most room for small pieces. */
	for (i = 0; i < 1000 && len; i++) {
		n = write(slave, data, len < 128 ? len : 128);
		if (n > 0) {
			data += n;
			len -= n;
		} else {
			usleep(1000);
		}
	}
	if (len)
		pr_err("Not all that was printed could be printed again\n");
	return tcsetattr(slave, TCSANOW, &t);
}

/* Bytes that a terminal may hold in one direction, and more: up to 13 KiB on the way, and 4 KiB to be read. */
#define QUEUE_SIZE 32768

/* What the slave of a terminal is called that a dump has opened itself. */
#define LENT_ID (~0u)

/* Stands in place of CRIU's check of /dev/tty: opens slaves that no process has open, or as /dev/tty only. */
static int tty_verify_ctty(void)
{
	struct tty_dump_info *d, *other, *lent;
	bool is_current, has_slave, hung;
	struct pollfd look;

	list_for_each_entry(d, &all_ttys, list) {
		if (d->driver == &current_driver &&
		    !test_bit(tty_gen_id(&ptm_driver, tty_get_index(d->id) - CURRENT_INDEX), tty_active_pairs)) {
			pr_err("The master of a terminal that is open as /dev/tty is not there\n");
			return -1;
		}
		if (d->driver != &ptm_driver)
			continue;
		is_current = has_slave = false;
		list_for_each_entry(other, &all_ttys, list) {
			is_current |= other->driver == &current_driver && tty_get_index(other->id) - CURRENT_INDEX == d->index;
			has_slave |= other->driver == &pts_driver && other->index == d->index;
		}
		look = (struct pollfd){ .fd = d->lfd, .events = POLLIN };
		if (has_slave || poll(&look, 1, 0) < 0)
			continue;
		hung = look.revents & POLLHUP; /* a slave was open once */
		if (!hung && !is_current) {
			if (look.revents & POLLIN) {
				pr_err("Data waits at a terminal of which nobody has opened the slave\n");
				return -1;
			}
			continue;
		}
		lent = xzalloc(sizeof(*lent));
		if (!lent)
			return -1;
		lent->id = LENT_ID;
		lent->driver = &pts_driver;
		lent->index = d->index;
		lent->flags = O_RDWR | O_NONBLOCK;
		lent->lfd = ioctl(d->lfd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK);
		list_add_tail(&lent->list, &all_ttys); /* after its master, as dump_lent wants it */
		if (lent->lfd < 0) {
			pr_perror("Can't open the slave of a terminal that nobody has open");
			return -1;
		}
	}
	return 0;
}

/* Has a master give what was printed, and nothing else. */
static int stop_packets(struct tty_dump_info *master)
{
	struct pollfd look = { .fd = master->lfd, .events = POLLPRI };
	int on = 0;

	if (ioctl(master->lfd, TIOCGPKT, &on) || !on)
		return 0;
	if (poll(&look, 1, 0) > 0 && look.revents & POLLPRI) {
		pr_err("A terminal in packet mode has a status that is not read yet\n");
		return -1;
	}
	master->packets = true;
	return send_packets(master->lfd, 0);
}

static void resume_packets(struct tty_dump_info *dinfo)
{
	if (dinfo->packets)
		send_packets(dinfo->lfd, 1);
}

static int send_packets(int master, int on)
{
	if (!ioctl(master, TIOCPKT, &on))
		return 0;
	pr_perror("Can't set the packet mode of a terminal");
	return -1;
}

/* Writes what waits at a terminal, the slave of which is lent: how much was printed, that, and what was typed. */
static int dump_lent(struct tty_dump_info *lent, const struct termios *t)
{
	TtyDataEntry e = TTY_DATA_ENTRY__INIT;
	u32 printed = lent->link->tty_data_size;
	struct termios same = *t;
	ssize_t len;
	int ret;

	lent->tty_data = xmalloc(QUEUE_SIZE);
	if (!lent->tty_data)
		return -1;
	if (t->c_lflag & ICANON)
		len = take_lines(lent->lfd, &same, lent->tty_data, QUEUE_SIZE);
	else
		len = read(lent->lfd, lent->tty_data, QUEUE_SIZE);
	if (len < 0 && errno != EAGAIN) {
		pr_perror("Can't read what was typed into a terminal that nobody has open");
		return -1;
	}
	lent->tty_data_size = len < 0 ? 0 : len;
	e.tty_id = lent->link->id; /* the last of several counts */
	e.data.len = sizeof(printed) + printed + lent->tty_data_size;
	e.data.data = xmalloc(e.data.len);
	if (!e.data.data)
		return -1;
	memcpy(e.data.data, &printed, sizeof(printed));
	memcpy(e.data.data + sizeof(printed), lent->link->tty_data, printed);
	memcpy(e.data.data + sizeof(printed) + printed, lent->tty_data, lent->tty_data_size);
	ret = pb_write_one(img_from_set(glob_imgset, CR_FD_TTY_DATA), &e, PB_TTY_DATA);
	xfree(e.data.data);
	return ret;
}

/* The counterpart: for a master that no slave is linked to. Where nobody has the slave open, it hangs up again. */
static int restore_lent(struct tty_info *info, int master)
{
	const char *data;
	int slave, ret;
	u32 printed;
	size_t len;

	if (!info->tty_data)
		return 0;
	data = (char *)info->tty_data->tde->data.data;
	len = info->tty_data->tde->data.len;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK);
	if (slave < 0 || len < sizeof(printed)) {
		pr_perror("Can't open the slave of tty %#x", info->tfe->id);
		close_safe(&slave);
		return -1;
	}
	memcpy(&printed, data, sizeof(printed));
	data += sizeof(printed);
	len -= sizeof(printed);
	ret = print_again(slave, data, printed);
	if (!ret && len > printed)
		ret = type_again(master, slave, data + printed, len - printed);
	close(slave);
	return ret;
}

static int tty_do_dump_queued_data(struct tty_dump_info *dinfo)
{
	TtyDataEntry e = TTY_DATA_ENTRY__INIT;
	struct termios t;
	ssize_t len;
	char *buf;

	if (stop_packets(__tty_is_master(dinfo->driver) ? dinfo : dinfo->link))
		return -1;
	if (tcgetattr(dinfo->lfd, &t))
		return -1;
	if (dinfo->id == LENT_ID)
		return dump_lent(dinfo, &t);
	if (__tty_is_master(dinfo->driver) || !(t.c_lflag & ICANON))
		return criu_do_dump_queued_data(dinfo);
	if (tty_unblock(dinfo->id, dinfo->lfd, dinfo->flags))
		return -1;
	buf = xmalloc(QUEUE_SIZE);
	if (!buf)
		return -1;
	len = take_lines(dinfo->lfd, &t, buf, QUEUE_SIZE);
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
