/* Where the memory of a process lies, and what it holds. */
#ifndef TVSNAP_REWIND_LAYOUT_H
#define TVSNAP_REWIND_LAYOUT_H

#include <stdint.h>

#include "text.h"

enum { PAGE = 4096 };

/* A run of memory with the same rights. */
struct mapping {
    uint64_t start, end;
    bool writable, of_a_file;
    bool plain; /* of no file, and as mmap made it: another can be made in its place */
};

/* The memory of a process that is looked at, in the order of addresses. */
struct layout {
    uint64_t heap_end, stack_start; /* what lies outside of them is of no use to anybody */
    struct text fixed;              /* a line for each mapping that cannot be set */
    struct mapping *mappings;       /* neighbours of plain ones are one */
    size_t count, room;
    uint64_t span; /* bytes from their starts to their ends */
    uint64_t *own; /* addresses of pages that are the process' own, and of all that are of a writable mapping of a file */
    size_t owns, own_room;
};

struct process;
struct user_regs_struct;

void begin_layout(struct layout *layout, uint64_t heap_end, uint64_t stack_start);
bool read_layout(struct process *p, struct layout *to, struct reason *why);
bool read_pages(struct process *p, const uint64_t *addresses, size_t count, char *data);
void free_layout(struct layout *layout);
bool same_layout(const struct layout *was, const struct layout *is);
const struct mapping *next_of(const struct layout *layout, size_t *at, bool plain);
bool set_heap_end(struct process *p, const struct user_regs_struct *at, struct reason *why);

#endif
