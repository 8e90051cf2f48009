/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What a holder (held.c) tells, and what native/launch asks of it: a CRIU for one restore. The request is one message,
 * with descriptors. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What a holder tells of itself: pages of a process, in the numbers of its sandbox, that it has at another address, and
 * that are also in the dump with which later ones are compared (pages.c). */
struct held_part {
    uint64_t pid, start, end, at;
};

struct restore_request {
    pid_t group; /* the process group that it joins */
    bool users;  /* whether a user namespace is the last descriptor */
};

/* The first descriptors; those of files by which control groups are joined follow. */
enum {
    SENT_PLACES,  /* of the process whose mount and network namespaces it enters */
    SENT_CHANNEL, /* its RPC socket */
    SENT_OUTPUT,
    SENT_ERRORS,
    SENT_STARTED, /* a pipe that gets its process id */
    SENT_GROUPS,
    MOST_SENT = SENT_GROUPS + 17,
};
