/* The memory layout of a process, and its contents. */
#ifndef TVSNAP_REWIND_LAYOUT_H
#define TVSNAP_REWIND_LAYOUT_H

#include <stdint.h>

#include "text.h"

enum { PAGE = 4096 };

/* A range of memory with the same permissions. */
struct mapping {
    uint64_t start, end;
    bool writable, of_a_file;
    bool plain; /* anonymous, and as mmap made it: it can be recreated */
    bool vdso;  /* the kernel's code for the process, which a dump has, too */
};

/* The inspected memory of a process, in the order of addresses. */
struct layout {
    uint64_t heap_end, stack_start; /* memory outside of these is unused */
    struct text fixed;              /* a line for each mapping that cannot be restored */
    struct mapping *mappings;       /* adjacent plain ones are merged */
    size_t count, room;
    uint64_t span; /* total bytes of the mappings */
    uint64_t *own; /* addresses of the process' own pages, and of all pages of writable mappings of files; if it is
                    * recorded exactly, of the vDSO instead of these */
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
