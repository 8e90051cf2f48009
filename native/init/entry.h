/* Data on a file besides its path, and its form in a list (walk.c). For any thread. */
#ifndef TVSNAP_ENTRY_H
#define TVSNAP_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "hash.h"

struct entry {
    struct stat st;
    bool opaque;
    unsigned flags; /* of a directory */
    bool attributed;
    struct digest attributes; /* if it has any */
};

enum { MOST_NUMBERS = 320 };

/* A buffer for attributes. */
struct attribute_room {
    char names[65536], value[65536];
};

int64_t nanoseconds(struct timespec t);
int open_directory(int parent, const char *name, int flags);
bool is_opaque(int directory);
unsigned read_flags(int directory);
int read_attributes(const char *path, struct entry *e, struct attribute_room *room);
void keep_owned(struct stat *st);
size_t write_numbers(char to[MOST_NUMBERS], const struct entry *e);

#endif
