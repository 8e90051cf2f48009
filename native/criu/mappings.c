/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * Added to CRIU's criu/mem.c when scripts/build_criu.sh builds it.
 *
 * The kernel remembers of a private mapping whether it could ever be written to, because such memory counts as promised
 * ("ac" in /proc/PID/smaps). Two mappings of one file that lie side by side and differ in this stay two. CRIU makes
 * nearly all mappings writable until their pages are there, so that a program's constants became one mapping with the
 * part beside them that is read-only only after its start: in processes that have a parent with the same memory, and in
 * forks of dumps that have another dump in `parent`.
 *
 * 1. note_promise, in a dump, notes of each private mapping whether it counts.
 * 2. keeps_unwritable decides, before a mapping is made, whether it is one that is never to be writable.
 * 3. inherit_rights gives a mapping of the parent's to its child, which may have made it writable.
 * 4. make_writable does so for a page that is to be another than that of the file, such as one with a breakpoint.
 *
 * Dumps without these notes are restored as CRIU does.
 */

void note_promise(const char *flags, struct vma_area *vma)
{
	const unsigned int other = VMA_AREA_VDSO | VMA_AREA_VVAR | VMA_AREA_AIORING | VMA_AREA_SHSTK | VMA_EXT_PLUGIN;
	VmaEntry *e = vma->e;

	e->status &= ~(VMA_PROMISED | VMA_NOT_PROMISED); /* of the mapping that its status was copied from */
	if (!(e->status & (VMA_FILE_PRIVATE | VMA_ANON_PRIVATE)) || e->status & other || e->flags & MAP_HUGETLB)
		return;
	if (!strstr(flags, " ac") && !(e->prot & PROT_WRITE))
		e->status |= VMA_NOT_PROMISED;
	else if (e->status & VMA_FILE_PRIVATE) /* anonymous memory without pages does not count once it is read-only */
		e->status |= VMA_PROMISED;
}

/* Whether any page of a mapping is to be restored. Addresses must not decrease from call to call. */
static bool has_pages(struct vma_area *vma, struct page_read *pr)
{
	while (pr->pe && pr->pe->vaddr + pagemap_len(pr->pe) <= vma->e->start)
		if (pr->advance(pr) <= 0)
			return false;
	return pr->pe && pr->pe->vaddr < vma->e->end;
}

/* Decides whether a mapping is never writable; returns whether it is one that has pages nevertheless. A dump itself
 * leaves some: CRIU has a process execute its code, and then puts the program's back. */
static bool keeps_unwritable(struct pstree_item *t, struct vma_area *vma, struct page_read *pr)
{
	bool pages;

	if (!(vma->e->status & VMA_NOT_PROMISED) || is_held(t, vma))
		return false;
	pages = has_pages(vma, pr);
	if (pages && !(vma->e->prot & PROT_READ)) /* they could not be compared */
		return false;
	vma->e->status |= VMA_NO_PROT_WRITE;
	return pages;
}

/* Gives a mapping, which was the parent's, the rights that its child needs. */
static int inherit_rights(struct vma_area *vma, void *at, unsigned long size)
{
	VmaEntry *parent = vma->pvma->e;
	int prot = vma->e->prot;

	if (!(parent->status & VMA_NO_PROT_WRITE)) {
		vma->e->status &= ~VMA_NO_PROT_WRITE;
		return 0;
	}
	if (!(vma->e->status & VMA_NO_PROT_WRITE))
		prot |= PROT_WRITE;
	if (prot != parent->prot && mprotect(at, size, prot)) {
		pr_perror("Can't change the rights of an inherited mapping");
		return -1;
	}
	return 0;
}

static int make_writable(struct vma_area *vma)
{
	if (!(vma->e->status & VMA_NO_PROT_WRITE))
		return 0;
	if (mprotect(decode_pointer(vma->premmaped_addr), vma_area_len(vma), vma->e->prot | PROT_WRITE)) {
		pr_perror("Can't make a mapping writable");
		return -1;
	}
	vma->e->status &= ~VMA_NO_PROT_WRITE;
	return 0;
}
