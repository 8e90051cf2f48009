/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * Added to CRIU's criu/mem.c when scripts/build_criu.sh builds it.
 *
 * Forks of one snapshot share its large heaps until they write to them. A holder is a CRIU that has read them once and
 * waits. For each restore it forks a CRIU, whose tasks are its descendants: their memory is a copy on write of the
 * holder's, as that of a child process, and is anonymous memory like any other. take_held moves it to where CRIU puts
 * memory that it has prepared. Nothing is read, so it takes as long for a large heap as for a small one, nearly.
 *
 * 1. hold_pages reads mappings. Each is read at its final address, as a mapping remembers where its first page was
 *    made, and is moved out of the way then. Whole blocks of pages become huge ones, of which a fork copies one entry.
 * 2. serve, in place of cr_service_work, waits for requests at its socket. A request has the descriptors that a CRIU
 *    needs (held.h); the process that made namespaces and mounts for it has sent them.
 * 3. take_held moves a mapping by an odd number of pages, so that the kernel takes huge ones apart: a task never had any.
 */
#include <dirent.h>
#include <sched.h>
#include <linux/sched.h>
#include "cr-service.h"
#include "crtools.h"
#include "held.h"
#include "image.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define LEAST_HELD (256 * PAGE_SIZE)
#define HUGE_PAGE (2UL << 20)
#define PARTS_AT_ONCE 128
#define ASIDE 0x200000000000UL /* from here on are few mappings of programs */

static struct held {
	pid_t pid;
	unsigned long start, end, at;
	bool taken;
} held[256];
static int held_n;

static struct held_part *parts;
static int parts_n, parts_room;

static struct held *find_held(pid_t pid, struct vma_area *vma)
{
	int i;

	for (i = 0; i < held_n; i++)
		if (held[i].pid == pid && held[i].start == vma->e->start && held[i].end == vma->e->end)
			return &held[i];
	return NULL;
}

static bool is_held(struct pstree_item *t, struct vma_area *vma)
{
	return held_n && !vma_inherited(vma) && find_held(vpid(t), vma);
}

/* Moves a held mapping into the place for prepared memory; returns 0 if it is not held. */
static int take_held(struct pstree_item *t, struct vma_area *vma, void **to)
{
	struct held *found = is_held(t, vma) ? find_held(vpid(t), vma) : NULL;
	unsigned long size;

	if (!found)
		return 0;
	size = found->end - found->start;
	if ((unsigned long)*to % HUGE_PAGE == found->at % HUGE_PAGE)
		*to += PAGE_SIZE;
	if (mremap((void *)found->at, size, size, MREMAP_FIXED | MREMAP_MAYMOVE, *to) != *to) {
		pr_perror("Can't take the held mapping %lx-%lx", found->start, found->end);
		return -1;
	}
	found->taken = true;
	return 1;
}

/* Returns how many of the next pages, which are to be read into a mapping, are there because it was held. */
static unsigned long pages_there(struct pstree_item *t, struct vma_area *vma, unsigned long address, unsigned long pages)
{
	struct held *found = is_held(t, vma) ? find_held(vpid(t), vma) : NULL;

	return found && found->taken ? min(pages, (unsigned long)(vma->e->end - address) / PAGE_SIZE) : 0;
}

/* Has whole blocks of pages of a mapping be huge ones, before they are read. */
static void make_huge(unsigned long start, unsigned long end)
{
	unsigned long address;

	start = (start + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	end &= ~(HUGE_PAGE - 1);
	if (start >= end)
		return;
	for (address = start; address < end; address += HUGE_PAGE)
		*(volatile char *)address = 0;
	if (madvise((void *)start, end - start, MADV_COLLAPSE))
		pr_debug("No huge pages at %lx-%lx\n", start, end);
}

static bool can_be_held(VmaEntry *e)
{
	const unsigned int other = ~(unsigned int)(MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
	int i;

	if (e->end - e->start < LEAST_HELD || e->status != (VMA_AREA_REGULAR | VMA_ANON_PRIVATE) || (e->flags & other))
		return false;
	for (i = 0; i < held_n; i++) /* one that it may have of its parent */
		if (held[i].start == e->start && held[i].end == e->end)
			return false;
	return held_n < ARRAY_SIZE(held);
}

/* Goes on to the next part of a page map that is below `end`; returns whether there is any. */
static bool next_part(struct page_read *pr, unsigned long end, unsigned long *from, unsigned long *to)
{
	*from = *to;
	if (*from >= end)
		return false;
	if (!pr->seek_pagemap(pr, *from)) {
		if (!pr->pe || pr->cvaddr <= *from)
			return false;
		*from = pr->cvaddr;
	}
	*to = min(end, (unsigned long)pr->pe->vaddr + pagemap_len(pr->pe));
	return *from < end;
}

static unsigned long size_below(struct page_read *pr, unsigned long start, unsigned long end)
{
	unsigned long from, to = start, size = 0;

	pr->reset(pr);
	while (next_part(pr, end, &from, &to))
		size += to - from;
	return size;
}

/* Notes that pages are held which are in the dump that later ones are compared with: all of a whole one, else those of
 * its parent. */
static int note_part(struct page_read *pr, const struct held *of, unsigned long from, unsigned long to)
{
	struct held_part *last = parts_n ? &parts[parts_n - 1] : NULL;

	if (pr->parent && !pagemap_in_parent(pr->pe))
		return 0;
	if (last && last->pid == of->pid && last->end == from) {
		last->end = to;
		return 0;
	}
	if (parts_n == parts_room) {
		parts_room = parts_room * 2 + 64;
		last = xrealloc(parts, parts_room * sizeof(*parts));
		if (!last)
			return -1;
		parts = last;
	}
	parts[parts_n++] = (struct held_part){ of->pid, from, to, of->at + from - of->start };
	return 0;
}

/* Holds one mapping if its place is free here. */
static int hold_one(struct page_read *pr, pid_t pid, VmaEntry *e)
{
	unsigned long from, to = e->start, run = e->start, ran = e->start, size = e->end - e->start, at;
	struct held *new = &held[held_n];
	void *place, *aside;

	place = mmap((void *)e->start, size, e->prot | PROT_WRITE, e->flags | MAP_FIXED_NOREPLACE, -1, 0);
	if (place != (void *)e->start)
		return place != MAP_FAILED && munmap(place, size) ? -1 : 0;
	aside = mmap((void *)ASIDE, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (aside == MAP_FAILED)
		return -1;
	at = ((unsigned long)aside & ~(HUGE_PAGE - 1)) + e->start % HUGE_PAGE;
	if (at < (unsigned long)aside)
		at += HUGE_PAGE;
	*new = (struct held){ pid, e->start, e->end, at };
	pr->reset(pr);
	while (next_part(pr, e->end, &from, &to)) {
		if (from != ran) {
			make_huge(run, ran);
			run = from;
		}
		ran = to;
	}
	make_huge(run, ran);
	pr->reset(pr);
	to = e->start;
	while (next_part(pr, e->end, &from, &to))
		if (pr->read_pages(pr, from, (to - from) / PAGE_SIZE, (void *)from, 0) < 0 || note_part(pr, new, from, to))
			return -1;
	if (mremap(place, size, size, MREMAP_FIXED | MREMAP_MAYMOVE, (void *)at) == MAP_FAILED)
		return -1;
	held_n++;
	return 0;
}

static int hold_pages_of(pid_t pid)
{
	struct page_read pr;
	struct cr_img *img;
	MmEntry *mm;
	int i, ret;

	img = open_image(CR_FD_MM, O_RSTR, pid);
	if (!img)
		return -1;
	ret = pb_read_one_eof(img, &mm, PB_MM);
	close_image(img);
	if (ret <= 0)
		return ret;
	ret = open_page_read(pid, &pr, PR_TASK);
	if (ret <= 0)
		goto free;
	for (i = 0, ret = 0; i < mm->n_vmas && !ret; i++)
		if (can_be_held(mm->vmas[i]) && size_below(&pr, mm->vmas[i]->start, mm->vmas[i]->end) >= LEAST_HELD)
			ret = hold_one(&pr, pid, mm->vmas[i]);
	pr.close(&pr);
free:
	mm_entry__free_unpacked(mm, NULL);
	return ret;
}

/* Holds what is large in the images of a directory. */
static int hold_pages(int images)
{
	struct dirent *entry;
	DIR *dir;
	int pid, ret = 0;

	if (install_service_fd(IMG_FD_OFF, dup(images)) < 0)
		return -1;
	dir = fdopendir(images);
	while (dir && !ret && (entry = readdir(dir)))
		if (sscanf(entry->d_name, "mm-%d.img", &pid) == 1)
			ret = hold_pages_of(pid);
	if (!dir || closedir(dir))
		ret = -1;
	close_image_dir();
	return ret;
}

enum { CHANNEL_FD = 3, USERS_FD = 141, RECEIVED_FD = 200 };

/* Becomes a CRIU for one restore: in the namespaces, groups and with the descriptors that were sent. */
static int become_criu(const struct restore_request *request, const int *sent, int n)
{
	char number[16];
	int i, null;

	if (request->users) {
		if (dup2(sent[--n], USERS_FD) < 0)
			return -1;
		snprintf(number, sizeof(number), "%d", USERS_FD);
		setenv("TVSNAP_USERS_FD", number, 1);
	}
	for (i = SENT_GROUPS; i < n; i++)
		if (write(sent[i], "0", 1) != 1)
			return -1;
	if (setpgid(0, request->group) || prctl(PR_SET_PDEATHSIG, SIGKILL) || unshare(CLONE_NEWCGROUP) ||
	    setns(sent[SENT_PLACES], CLONE_NEWNS | CLONE_NEWNET) || chdir("/"))
		return -1;
	null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, 0) < 0 || dup2(sent[SENT_OUTPUT], 1) < 0 ||
	    dup2(sent[SENT_ERRORS], 2) < 0 || dup2(sent[SENT_CHANNEL], CHANNEL_FD) < 0)
		return -1;
	syscall(__NR_close_range, CHANNEL_FD + 1, USERS_FD - 1, 0);
	syscall(__NR_close_range, USERS_FD + 1, ~0U, 0);
	return 0;
}

/* Receives a message with descriptors, numbered from RECEIVED_FD on; returns how many there are, -1 at the end. */
static int receive(int sk, void *data, size_t size, int *sent, ssize_t *got)
{
	char space[CMSG_SPACE(MOST_SENT * sizeof(int))];
	struct iovec iov = { data, size };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
	struct cmsghdr *part;
	int i, n = 0;

	do
		*got = recvmsg(sk, &message, MSG_CMSG_CLOEXEC);
	while (*got < 0 && errno == EINTR);
	if (*got <= 0)
		return -1;
	part = CMSG_FIRSTHDR(&message);
	if (part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
		n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	for (i = 0; i < n; i++) {
		int *given = (int *)CMSG_DATA(part) + i;

		sent[i] = fcntl(*given, F_DUPFD_CLOEXEC, RECEIVED_FD);
		close(*given);
	}
	return n;
}

int serve(int sk)
{
	char told[64];
	int sent[MOST_SENT], n, i;
	struct restore_request request;
	pid_t pid;
	ssize_t got;

	if (!getenv("TVSNAP_HOLDER"))
		return cr_service_work(sk);
	n = receive(sk, told, sizeof(told), sent, &got);
	if (n != 1 || hold_pages(sent[0]))
		return 1;
	for (i = 0; i < parts_n; i += n) {
		n = min(parts_n - i, PARTS_AT_ONCE);
		if (send(sk, parts + i, n * sizeof(*parts), 0) < 0)
			return 1;
	}
	n = snprintf(told, sizeof(told), "holds %d", held_n);
	if (send(sk, told, n, 0) != n)
		return 1;
	while ((n = receive(sk, &request, sizeof(request), sent, &got)) >= 0) {
		if (n < SENT_GROUPS + request.users || got != sizeof(request))
			return 1;
		/* A child of our parent, as every CRIU is, so that what it restores can be so, too. */
		pid = syscall(__NR_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
		if (!pid) {
			unsetenv("TVSNAP_HOLDER");
			if (!become_criu(&request, sent, n))
				return cr_service_work(CHANNEL_FD);
			dprintf(sent[SENT_ERRORS], "CRIU cannot begin: %s\n", strerror(errno));
			return 1;
		}
		if (pid > 0 && write(sent[SENT_STARTED], &pid, sizeof(pid)) != sizeof(pid))
			pr_perror("Can't tell what was started");
		for (i = 0; i < n; i++)
			close(sent[i]);
	}
	return 0;
}
