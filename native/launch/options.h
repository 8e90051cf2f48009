/* The command line's options for a sandbox; see launch.c. */
#pragma once

#include <stdbool.h>

enum { MAX_LOWERS = 8, MAX_KEPT = 8, MAX_DEVICES = 16 };

struct options {
    const char *cgroups[16], *pool, *pool_dir, *live, *lowers[MAX_LOWERS], *hostname, *kept[MAX_KEPT], *cache;
    const char *devices[MAX_DEVICES], *directory;
    int cgroup_count, lower_count, kept_count, device_count, parent, holder;
    unsigned long id_base, id_count, own_base;
    bool no_new_privileges;
    char **command;
};

extern struct options O;

void parse(int argc, char **argv, int first);
