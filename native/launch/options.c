#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options O;

void parse(int argc, char **argv, int first) {
    for (int i = first; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(name, "--") == 0) {
            O.command = argv + i + 1;
            return;
        }
        if (strcmp(name, "--no-new-privileges") == 0) {
            O.no_new_privileges = true;
            continue;
        }
        if (strcmp(name, "--cgroup") == 0 && O.cgroup_count < 16) O.cgroups[O.cgroup_count++] = value;
        else if (strcmp(name, "--pool") == 0) O.pool = value;
        else if (strcmp(name, "--pool-dir") == 0) O.pool_dir = value;
        else if (strcmp(name, "--live") == 0) O.live = value;
        else if (strcmp(name, "--lower") == 0 && O.lower_count < MAX_LOWERS) O.lowers[O.lower_count++] = value;
        else if (strcmp(name, "--keep") == 0 && O.kept_count < MAX_KEPT) O.kept[O.kept_count++] = value;
        else if (strcmp(name, "--device") == 0 && O.device_count < MAX_DEVICES) O.devices[O.device_count++] = value;
        else if (strcmp(name, "--cache") == 0) O.cache = value;
        else if (strcmp(name, "--hostname") == 0) O.hostname = value;
        else if (strcmp(name, "--directory") == 0) O.directory = value;
        else if (strcmp(name, "--parent") == 0) O.parent = atoi(value);
        else if (strcmp(name, "--holder") == 0) O.holder = atoi(value);
        else if (strcmp(name, "--own") == 0) O.own_base = strtoul(value, NULL, 10);
        else if (strcmp(name, "--ids") == 0 && i + 2 < argc) {
            O.id_base = strtoul(value, NULL, 10);
            O.id_count = strtoul(argv[++i + 1], NULL, 10);
        } else {
            fprintf(stderr, "unknown option %s\n", name);
            exit(2);
        }
        i++;
    }
    fprintf(stderr, "no command given\n");
    exit(2);
}
