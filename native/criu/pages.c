/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * Added to CRIU's criu/mem.c when scripts/build_criu.sh builds it.
 *
 * A dump into a directory that has another dump in `parent` writes only those pages that are not the same there. CRIU
 * itself asks the kernel which pages were written to since (soft-dirty), which not every kernel can tell, and which is
 * lost in a fork. Here they are compared, so that it does not matter how the memory came about. is_same_page stands in
 * place of page_in_parent, and begin_comparing of detect_pid_reuse.
 */

#include <sys/mman.h>
#include <sys/uio.h>

#define COMPARED_AT_ONCE (64 * PAGE_SIZE)

/* The pages of a process in `parent`, and some of its present ones: those from `start` to `end`. */
static struct {
	bool open;
	struct page_read before;
	char *pages;
	size_t size;
	pid_t pid;
	char now[COMPARED_AT_ONCE];
	unsigned long start, end;
} compared;

static void end_comparing(void)
{
	if (!compared.open)
		return;
	munmap(compared.pages, compared.size);
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
	compared.pid = item->pid->real;
	compared.start = compared.end = 0;
	compared.open = true;
	return 0;
close:
	compared.before.close(&compared.before);
	return 1;
}

/* Whether a page, which is to be dumped, is in `parent` as it is now. Addresses must not decrease from call to call. */
static bool is_same_page(pmc_t *pmc, unsigned long address)
{
	struct page_read *before = &compared.before;
	unsigned long end;
	struct iovec here, there;
	ssize_t got;

	if (before->seek_pagemap(before, address) <= 0 || !pagemap_present(before->pe))
		return false;
	if (before->pi_off + PAGE_SIZE > compared.size)
		return false;
	if (address < compared.start || address >= compared.end) {
		/* No further than it has pages of its own: reading others would make the kernel provide them. */
		end = pmc->regs ? pmc->regs[pmc->regs_idx].end : address + PAGE_SIZE;
		end = min(end, (unsigned long)before->pe->vaddr + pagemap_len(before->pe));
		here = (struct iovec){ compared.now, min(end - address, (unsigned long)sizeof(compared.now)) };
		there = (struct iovec){ (void *)address, here.iov_len };
		got = process_vm_readv(compared.pid, &here, 1, &there, 1, 0);
		if (got < (ssize_t)PAGE_SIZE)
			return false;
		compared.start = address;
		compared.end = address + (got & ~(ssize_t)(PAGE_SIZE - 1));
	}
	return !memcmp(compared.now + (address - compared.start), compared.pages + before->pi_off, PAGE_SIZE);
}
