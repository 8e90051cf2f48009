/* What was seen of each file at a look, in the order in which the files were found. */
#ifndef TVSNAP_LOOK_MEMORY_H
#define TVSNAP_LOOK_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "init/entry.h"

/* Growing text. */
struct text {
    char *data;
    size_t length, room;
};

bool add_text(struct text *to, const char *data, size_t length);

/* What is compared; without padding. */
struct facts {
    int64_t mode, uid, gid, size, mtime, ctime, atime, inode, device, opaque, flags, attributed;
    struct digest attributes;
};

struct seen {
    size_t path, length; /* its place in `paths` */
    struct facts facts;
    bool settled; /* changing attributes or flags will give it another ctime */
    bool met;     /* at the next look */
};

struct memory {
    struct seen *files;
    size_t count, room;
    struct text paths;
    size_t next;            /* the one that is probably requested next */
    struct seen **in_order; /* by path; made when it is first needed */
};

struct facts facts_of(const struct entry *e);
bool remember(struct memory *m, const char *path, size_t length, const struct facts *facts, bool settled);
struct seen *find_seen(struct memory *m, const char *path, size_t length);
size_t bytes_of(const struct memory *m);
bool copy_memory(struct memory *to, const struct memory *from);
void forget(struct memory *m);

#endif
