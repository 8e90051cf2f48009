/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What mappings.c adds to the status of a mapping in a dump. */
#pragma once

#define VMA_PROMISED     (1 << 25)
#define VMA_NOT_PROMISED (1 << 26)

struct vma_area;
extern void note_promise(const char *flags, struct vma_area *vma);
