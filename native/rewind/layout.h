/* Where the memory of a process lies, and what it holds. */
#ifndef TVSNAP_REWIND_LAYOUT_H
#define TVSNAP_REWIND_LAYOUT_H

#include <stdint.h>

#include "text.h"

enum { PAGE = 4096 };

/* A run of memory with the same rights, and the pages of it that are the process' own. Others are a file's, or empty. */
struct mapping {
    uint64_t start, end;
    bool writable, of_a_file;
    bool plain;    /* of no file, and as mmap made it: another can be made in its place */
    uint64_t *own; /* addresses of its own pages; of a writable one of a file, those of all */
    char *data;    /* what they held */
    size_t owns;   /* how many there are */
};

/* The memory of a process that is looked at, in the order of addresses. */
struct layout {
    uint64_t heap_end, stack_start; /* what lies outside of them is of no use to anybody */
    struct text fixed;              /* a line for each mapping that cannot be set */
    struct mapping *mappings;       /* neighbours of plain ones are one */
    size_t count;
    uint64_t span; /* bytes from their starts to their ends */
};

struct process;
struct user_regs_struct;

bool read_layout(struct process *p, struct layout *to, struct reason *why);
bool read_memory(struct process *p, struct layout *layout, struct reason *why);
void free_layout(struct layout *layout);
bool same_layout(const struct layout *was, const struct layout *is);
const struct mapping *next_of(const struct layout *layout, size_t *at, bool plain);
bool heap_end(struct process *p, const struct user_regs_struct *at, uint64_t *end);
bool set_heap_end(struct process *p, const struct user_regs_struct *at, struct reason *why);

#endif
