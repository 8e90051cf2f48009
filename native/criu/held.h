/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What native/launch asks of a holder (held.c): a CRIU for one restore. The request is one message, with descriptors. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

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
