/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * Added to CRIU's criu/mem.c when scripts/build_criu.sh builds it.
 *
 * A dump into a directory that has another dump in `parent` writes only those pages that are not the same there. CRIU
 * itself asks the kernel which pages were written to since (soft-dirty), which not every kernel can tell, and which is
 * lost in a fork. Here they are compared, so that it does not matter how the memory came about. is_same_page stands in
 * place of page_in_parent, and begin_comparing of detect_pid_reuse.
 *
 * Pages that a fork still shares with what holds them (held.c) need not be read: they are the same if they are the same
 * page of this machine's memory. What is held is told by $TVSNAP_PARTS_FD, by $TVSNAP_HOLDER_PID.
 */

#include <sys/mman.h>
#include "held.h"

#define COMPARED_AT_ONCE (64 * PAGE_SIZE)

/* The pages of a process in `parent`, and some of its present ones: those from `start` to `end`. */
static struct {
	bool open;
	struct page_read before;
	char *pages;
	size_t size;
	int memory;
	char now[COMPARED_AT_ONCE];
	unsigned long start, end;
} compared;

#define LOOKED_AT_ONCE 2048

/* What is held of the process: the parts from `part` to `parts_end`, and where the pages from `start` to `end` lie. */
static struct {
	int pagemap;
	struct held_part *parts, *parts_end, *part;
	u64 here[LOOKED_AT_ONCE], there[LOOKED_AT_ONCE], again[LOOKED_AT_ONCE];
	unsigned long start, end;
} shared = { .pagemap = -1 };

static void find_parts(pid_t pid)
{
	static struct held_part *parts, *end;
	const char *fd = getenv("TVSNAP_PARTS_FD"), *holder = getenv("TVSNAP_HOLDER_PID");
	struct stat about;
	char path[64];

	if (fd && holder && !parts && !fstat(atoi(fd), &about) && about.st_size) {
		parts = mmap(NULL, about.st_size, PROT_READ, MAP_SHARED, atoi(fd), 0);
		snprintf(path, sizeof(path), "/proc/%s/pagemap", holder);
		shared.pagemap = parts == MAP_FAILED ? -1 : open(path, O_RDONLY | O_CLOEXEC);
		end = shared.pagemap < 0 ? parts : parts + about.st_size / sizeof(*parts);
	}
	for (shared.part = parts; shared.part < end && shared.part->pid != pid;)
		shared.part++;
	for (shared.parts_end = shared.part; shared.parts_end < end && shared.parts_end->pid == pid;)
		shared.parts_end++;
	shared.start = shared.end = 0;
}

static bool look(int pagemap, unsigned long address, u64 *pages, size_t size)
{
	return pread(pagemap, pages, size, address / PAGE_SIZE * sizeof(*pages)) == size;
}

/* Whether one of the pages that were looked at is the very page of the holder. */
static bool is_shared(unsigned long address)
{
	unsigned long i = (address - shared.start) / PAGE_SIZE;

	return shared.here[i] & shared.there[i] & shared.again[i] & PME_PRESENT && PME_PFRAME(shared.here[i]) &&
	       PME_PFRAME(shared.here[i]) == PME_PFRAME(shared.there[i]) &&
	       PME_PFRAME(shared.here[i]) == PME_PFRAME(shared.again[i]);
}

/* Whether a process still has the very page of the holder. Addresses must not decrease from call to call. */
static bool is_shared_page(pmc_t *pmc, unsigned long address)
{
	unsigned long at;
	size_t size;

	while (shared.part < shared.parts_end && shared.part->end <= address)
		shared.part++;
	if (shared.part == shared.parts_end || shared.part->start > address)
		return false;
	if (address < shared.start || address >= shared.end) {
		at = shared.part->at + (address - shared.part->start);
		size = min((shared.part->end - address) / PAGE_SIZE, (u64)LOOKED_AT_ONCE) * sizeof(u64);
		/* Twice here: the kernel may move pages meanwhile, and put others in their places. */
		if (!look(pmc->fd, address, shared.here, size) || !look(shared.pagemap, at, shared.there, size) ||
		    !look(pmc->fd, address, shared.again, size))
			return false;
		shared.start = address;
		shared.end = address + size / sizeof(u64) * PAGE_SIZE;
	}
	return is_shared(address);
}

/* Returns where the next page may lie that the process shares with the holder; `address` is one that it does not. */
static unsigned long unshared_until(unsigned long address)
{
	if (shared.part == shared.parts_end)
		return ULONG_MAX;
	if (address < shared.part->start)
		return shared.part->start;
	do
		address += PAGE_SIZE;
	while (address < shared.end && !is_shared(address));
	return address;
}

static void end_comparing(void)
{
	if (!compared.open)
		return;
	munmap(compared.pages, compared.size);
	close(compared.memory);
	compared.before.close(&compared.before);
	compared.open = false;
}

/* Returns whether the memory of a process cannot be compared; then all of it is dumped. */
static int begin_comparing(struct pstree_item *item)
{
	struct stat about;
	int parent, ret;

	if (open_parent(get_service_fd(IMG_FD_OFF), &parent) || parent < 0)
		return 1;
	ret = open_page_read_at(parent, vpid(item), &compared.before, PR_TASK);
	close(parent);
	if (ret <= 0)
		return 1;
	if (fstat(img_raw_fd(compared.before.pi), &about) || !about.st_size)
		goto close;
	compared.size = about.st_size;
	compared.pages = mmap(NULL, compared.size, PROT_READ, MAP_SHARED, img_raw_fd(compared.before.pi), 0);
	if (compared.pages == MAP_FAILED)
		goto close;
	/* Unlike process_vm_readv, it reads pages that processes share without giving this one its own. */
	compared.memory = open_proc(item->pid->real, "mem");
	if (compared.memory < 0)
		goto unmap;
	compared.start = compared.end = 0;
	compared.open = true;
	find_parts(vpid(item));
	return 0;
unmap:
	munmap(compared.pages, compared.size);
close:
	compared.before.close(&compared.before);
	return 1;
}

/* Whether a page, which is to be dumped, is in `parent` as it is now. Addresses must not decrease from call to call. */
static bool is_same_page(pmc_t *pmc, unsigned long address)
{
	struct page_read *before = &compared.before;
	unsigned long end;
	ssize_t got;

	if (before->seek_pagemap(before, address) <= 0 || !pagemap_present(before->pe))
		return false;
	if (before->pi_off + PAGE_SIZE > compared.size)
		return false;
	if (is_shared_page(pmc, address))
		return true;
	if (address < compared.start || address >= compared.end) {
		/* No further than it has pages of its own: reading others would make the kernel provide them. */
		end = pmc->regs ? pmc->regs[pmc->regs_idx].end : address + PAGE_SIZE;
		end = min(end, (unsigned long)before->pe->vaddr + pagemap_len(before->pe));
		end = min(end, unshared_until(address));
		got = pread(compared.memory, compared.now, min(end - address, (unsigned long)sizeof(compared.now)), address);
		if (got < (ssize_t)PAGE_SIZE)
			return false;
		compared.start = address;
		compared.end = address + (got & ~(ssize_t)(PAGE_SIZE - 1));
	}
	return !memcmp(compared.now + (address - compared.start), compared.pages + before->pi_off, PAGE_SIZE);
}
