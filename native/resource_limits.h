/* The resource limits (setrlimit(2)) of programs in a sandbox, however tvsnap or the container engine was started:
 * those that systemd and recent engines give a service. Control groups limit what a sandbox uses in total. */
#pragma once

#include <sys/resource.h>

static const struct {
    int resource;
    struct rlimit limit;
} RESOURCE_LIMITS[] = {
    {RLIMIT_AS, {RLIM_INFINITY, RLIM_INFINITY}},
    {RLIMIT_CORE, {0, RLIM_INFINITY}},
    {RLIMIT_CPU, {RLIM_INFINITY, RLIM_INFINITY}},
    {RLIMIT_DATA, {RLIM_INFINITY, RLIM_INFINITY}},
    {RLIMIT_FSIZE, {RLIM_INFINITY, RLIM_INFINITY}},
    {RLIMIT_LOCKS, {RLIM_INFINITY, RLIM_INFINITY}},
    {RLIMIT_MEMLOCK, {8 << 20, 8 << 20}},
    {RLIMIT_MSGQUEUE, {819200, 819200}},
    {RLIMIT_NICE, {0, 0}},
    {RLIMIT_NOFILE, {1024, 524288}},
    {RLIMIT_NPROC, {65536, 65536}},
    {RLIMIT_RSS, {RLIM_INFINITY, RLIM_INFINITY}},
    {RLIMIT_RTPRIO, {0, 0}},
    {RLIMIT_RTTIME, {RLIM_INFINITY, RLIM_INFINITY}},
    {RLIMIT_SIGPENDING, {65536, 65536}},
    {RLIMIT_STACK, {8 << 20, RLIM_INFINITY}},
};

enum { RESOURCE_LIMIT_COUNT = sizeof RESOURCE_LIMITS / sizeof *RESOURCE_LIMITS };
