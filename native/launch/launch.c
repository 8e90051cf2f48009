/* Host-side helper of the local backend and of image builds: prepares namespaces, mounts and cgroups, then execs.
 *
 * It is one short-lived static program, because none of this can be done safely inside a threaded Python process.
 * All mounts are made in a separate mount namespace, so that the host's mount table stays as it is.
 *
 *   tvsnap-launch start   OPTIONS... -- INIT ARG...   starts a sandbox: prints its PID 1's process id, and ends
 *   tvsnap-launch restore OPTIONS... -- CRIU ARG...   becomes CRIU, in a fresh network namespace, the root mounted
 *   tvsnap-launch dump PID OPTIONS... -- CRIU ARG...  becomes CRIU, in that sandbox's network namespace
 *                                                     (standard input is its RPC socket, and becomes descriptor 3)
 *   tvsnap-launch hold    OPTIONS... -- CRIU ARG...   becomes a CRIU that holds memory, see ../criu/held.c
 *   tvsnap-launch build   OPTIONS... -- PROGRAM ARG...  runs a program of an image's build, see build.c
 *   tvsnap-launch owners DIR --ids BASE COUNT         tries to show that directory with other owners
 *   tvsnap-launch lacks                               prints resource limits that a sandbox cannot get as intended
 *   tvsnap-launch network PID                         sets up that sandbox's network namespace as start does
 *
 * Options:  --cgroup DIR     join it (repeatable)
 *           --pool DEVICE    block device of the btrfs pool; or --pool-dir DIR, if it is on a btrfs of the host
 *           --live PATH      the sandbox's subvolume, relative to the pool; holds upper/ and work/
 *           --lower DIR      lower layers, topmost first (repeatable)
 *           --keep DIR       a host directory that CRIU sees (repeatable): its program, plugins, libraries
 *           --cache DIR      where CRIU caches what it knows of this kernel
 *           --ids BASE COUNT the user namespace's range, and the owners on disk
 *           --own BASE       as many users that only this sandbox has, if files can be shown as theirs
 *           --device NAME    a node of the host's /dev that the sandbox gets, too (repeatable)
 *           --hostname NAME
 *           --no-new-privileges
 *           --holder FD      restore: instead of becoming CRIU, ask the holder at this socket for one
 *           --directory DIR  where a build's program starts
 *           --parent PID     the process with which a build's program ends
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "build.h"
#include "checks.h"
#include "criu/held.h"
#include "mounts.h"
#include "network.h"
#include "options.h"
#include "owners.h"
#include "resource_limits.h"
#include "signals.h"

/* Root's capabilities that CRIU needs on this machine; for a restore it also has those of the sandbox's namespace. */
static const int CRIU_CAPABILITIES[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,    CAP_FSETID,     CAP_KILL,      CAP_SETGID,
    CAP_SETUID, CAP_SETPCAP,      CAP_NET_ADMIN,       CAP_IPC_OWNER, CAP_SYS_CHROOT, CAP_SYS_PTRACE, CAP_SYS_ADMIN,
    CAP_SYS_NICE, CAP_SYS_RESOURCE, CAP_CHECKPOINT_RESTORE,
};

enum { RPC_FD = 3, HOLDER_FD = 180 };

/* Where this process, or a CRIU in its place, joins a control group: the file's path. */
static const char *group_file(int number) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/tasks", O.cgroups[number]);
    if (access(path, W_OK)) snprintf(path, sizeof path, "%s/cgroup.procs", O.cgroups[number]);
    return path;
}

/* To move a whole process, the kernel waits until no process forks anywhere, some milliseconds each time; moving
 * only the calling thread, as v1 can by `tasks`, needs no wait, and we have no other thread. */
static void join_cgroups(void) {
    for (int i = 0; i < O.cgroup_count; i++) write_file(group_file(i), "0");
}

/* In the new namespaces: enters the root and becomes the sandbox's PID 1. */
static void enter_sandbox(int go) {
    char byte;
    check(read(go, &byte, 1) == 1, "start signal");
    close(go);
    check(setgroups(0, NULL) == 0, "the caller's groups");
    check(setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0, "root of the user namespace");
    /* A mount from outside this user namespace is locked; a bind mount of it is not, and can become the root. */
    check(mount(ROOT, ROOT, NULL, MS_BIND, NULL) == 0 && chdir(ROOT) == 0, ROOT);
    enter_root(TTY_GROUP);
    if (O.hostname) check(sethostname(O.hostname, strlen(O.hostname)) == 0, "host name");
    if (O.no_new_privileges) check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    check(setsid() >= 0, "session");
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) check(dup2(null, i) >= 0, "dup2");
    check(syscall(SYS_close_range, 3, ~0U, 0) == 0, "close_range");
    execve(O.command[0], O.command, environ);
    _exit(127);
}

/* Makes what a process inherits independent of how tvsnap was started: with another niceness, as a service, in the
 * background with signals ignored. */
static void become_usual(void) {
    static const struct sched_param none = {0};
    check(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &none) == 0, "scheduling"); /* musl's function refuses this */
    check(setpriority(PRIO_PROCESS, 0, 0) == 0, "niceness");
    check(syscall(SYS_ioprio_set, 1, 0, 0) == 0, "input and output priority"); /* 1: a process, 0: this one */
    check(prctl(PR_SET_TIMERSLACK, 50000) == 0, "timer slack");
    check(personality(PER_LINUX) >= 0, "personality");
    write_file("/proc/self/oom_score_adj", "0");
    write_file("/proc/self/coredump_filter", "0x33");
    reset_signals();
    umask(022);
}

/* Allows a sandbox's processes the resource limits that PID 1 gives them, and those in a snapshot, if this process may
 * raise its own (CAP_SYS_RESOURCE). */
static void lift_limits(void) {
    for (int i = 0; i < RESOURCE_LIMIT_COUNT; i++) {
        struct rlimit own;
        check(getrlimit(RESOURCE_LIMITS[i].resource, &own) == 0, "resource limits");
        if (own.rlim_max >= RESOURCE_LIMITS[i].limit.rlim_max) continue; /* RLIM_INFINITY is the highest */
        own.rlim_max = RESOURCE_LIMITS[i].limit.rlim_max;
        setrlimit(RESOURCE_LIMITS[i].resource, &own);
    }
}

/* Prints the limits of a sandbox that differ from RESOURCE_LIMITS because this process may not raise its own, except
 * those that nobody here may raise, which the machine's first process has too. */
static int lacks(void) {
    lift_limits();
    for (int i = 0; i < RESOURCE_LIMIT_COUNT; i++) {
        int resource = (int)RESOURCE_LIMITS[i].resource;
        struct rlimit own, usual;
        check(getrlimit(resource, &own) == 0, "resource limits");
        if (prlimit(1, resource, NULL, &usual)) usual = RESOURCE_LIMITS[i].limit; /* not everybody may ask */
        if (own.rlim_max < RESOURCE_LIMITS[i].limit.rlim_max && own.rlim_max < usual.rlim_max)
            printf("limit %d is %llu\n", resource, (unsigned long long)own.rlim_max);
    }
    return 0;
}

static int start(void) {
    char path[64], map[64];
    int go[2], result = dup(1);
    become_usual();
    lift_limits();
    signal(SIGPIPE, SIG_IGN);
    join_cgroups();
    fresh_network();
    own_mounts();
    int users = mount_root();
    check(users < 0 || setns(users, CLONE_NEWUSER) == 0, "user namespace");
    check(pipe2(go, O_CLOEXEC) == 0, "pipe");
    /* It becomes our sibling, so that the Python process is its parent and reaps it. */
    unsigned long flags = CLONE_PARENT | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
                          CLONE_NEWCGROUP;
    pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
    check(pid >= 0, "namespaces");
    if (pid == 0) {
        close(go[1]);
        enter_sandbox(go[0]);
    }
    snprintf(map, sizeof map, "0 %lu %lu\n", O.id_base, O.id_count);
    snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
    write_file(path, map);
    snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
    write_file(path, map);
    check(write(go[1], "g", 1) == 1, "start signal");
    dprintf(result, "%d\n", (int)pid);
    return 0;
}

/* Drops, for the program that is executed next, all capabilities except those that CRIU needs. */
static void drop_capabilities(void) {
    unsigned long long kept = 0;
    for (size_t i = 0; i < sizeof CRIU_CAPABILITIES / sizeof *CRIU_CAPABILITIES; i++) kept |= 1ULL << CRIU_CAPABILITIES[i];
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++)
        if (!(kept >> capability & 1)) check(prctl(PR_CAPBSET_DROP, capability) == 0, "capabilities");
}

/* CRIU's socket gets a low descriptor: those of the layers are fixed, and the caller may have any number of its own.
 * CRIU ends with the thread that waits for it: what a killed tvsnap leaves must not be written to any more. */
_Noreturn static void become_criu(void) {
    check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "death signal");
    check(setpgid(0, 0) == 0, "process group"); /* to find what it leaves behind */
    check(dup2(0, RPC_FD) >= 0, "RPC socket");
    int null = open("/dev/null", O_RDONLY);
    check(null >= 0 && dup2(null, 0) == 0, "/dev/null");
    close(null);
    drop_capabilities();
    execv(O.command[0], O.command);
    fail(O.command[0]);
    _exit(1);
}

/* Asks a holder for a CRIU in the namespaces that were made here, and waits for its end: it belongs to the group of this
 * process, and ends with it.
 *
 * groups: descriptors of the files by which it joins the control groups.
 * users: the user namespace for it; -1 if there is none. */
_Noreturn static void ask_holder(const int *groups, int users) {
    struct restore_request request = {.group = getpid(), .users = users >= 0};
    int started[2], sent[MOST_SENT], n = SENT_GROUPS;
    pid_t pid;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof sent)];
    } control = {0};
    check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "death signal");
    check(setpgid(0, 0) == 0, "process group");
    check(pipe2(started, O_CLOEXEC) == 0, "pipe");
    sent[SENT_PLACES] = (int)syscall(SYS_pidfd_open, getpid(), 0);
    check(sent[SENT_PLACES] >= 0, "a descriptor of this process");
    sent[SENT_CHANNEL] = 0;
    sent[SENT_OUTPUT] = 1;
    sent[SENT_ERRORS] = 2;
    sent[SENT_STARTED] = started[1];
    for (int i = 0; i < O.cgroup_count; i++) sent[n++] = groups[i];
    if (users >= 0) sent[n++] = users;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = (socklen_t)CMSG_LEN((size_t)n * sizeof *sent);
    memcpy(CMSG_DATA(&control.header), sent, (size_t)n * sizeof *sent);
    struct iovec data = {&request, sizeof request};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control};
    message.msg_controllen = (socklen_t)CMSG_SPACE((size_t)n * sizeof *sent);
    check(sendmsg(HOLDER_FD, &message, MSG_NOSIGNAL) == sizeof request, "what holds the memory");
    for (int i = 0; i < n; i++)
        if (sent[i] != 2) close(sent[i]); /* so that the end of CRIU shows at its socket */
    check(read(started[0], &pid, sizeof pid) == sizeof pid, "what holds the memory");
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (ended.fd >= 0)
        while (poll(&ended, 1, -1) < 0 && errno == EINTR) continue;
    exit(0);
}

/* See native/criu/owners.c. */
static void tell_criu(const char *name, unsigned long number) {
    char text[32];
    snprintf(text, sizeof text, "%lu", number);
    check(setenv(name, text, 1) == 0, name);
}

_Noreturn static void restore(void) {
    int groups[sizeof O.cgroups / sizeof *O.cgroups];
    become_usual(); /* CRIU sets what differs from this, and its children inherit the rest */
    lift_limits();
    if (O.holder) {
        check(dup3(O.holder, HOLDER_FD, O_CLOEXEC) == HOLDER_FD && close(O.holder) == 0, "what holds the memory");
        for (int i = 0; i < O.cgroup_count; i++)
            check((groups[i] = open(group_file(i), O_WRONLY | O_CLOEXEC)) >= 0, O.cgroups[i]);
    } else {
        join_cgroups();
        check(unshare(CLONE_NEWCGROUP) == 0, "cgroup namespace"); /* CRIU restores none: its children inherit this */
    }
    fresh_network();
    own_mounts();
    int users = mount_root();
    if (O.holder) {
        leave_host(true);
        ask_holder(groups, users);
    }
    if (users >= 0) {
        check(dup2(users, USERS_FD) >= 0, "user namespace");
        tell_criu("TVSNAP_USERS_FD", USERS_FD);
    }
    leave_host(true);
    become_criu();
}

_Noreturn static void dump(const char *pid) {
    char path[64];
    become_usual(); /* its images are read by the sandbox's users, whatever the umask of tvsnap is */
    join_cgroups();
    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    check(fd >= 0 && setns(fd, CLONE_NEWNET) == 0, "the sandbox's network namespace");
    own_mounts();
    make_devices();
    tell_criu("TVSNAP_FIRST_USER", O.id_base);
    tell_criu("TVSNAP_OWNER", owner_of_users(pid));
    leave_host(false);
    become_criu();
}

_Noreturn static void hold(void) {
    become_usual();
    lift_limits();
    join_cgroups();
    own_mounts();
    make_devices();
    leave_host(false);
    check(setenv("TVSNAP_HOLDER", "1", 1) == 0, "TVSNAP_HOLDER");
    become_criu();
}

/* Reports why sandboxes whose layers are on a directory's file system cannot have their own users. */
static int owners(char *directory) {
    int users = open_users((uid_t)O.id_base, O.id_base, O.id_base, O.id_count);
    check(users >= 0, "user namespace");
    O.lowers[O.lower_count++] = directory;
    own_mounts();
    check(mkdir(LAYERS, 0700) == 0 && mkdir(LAYERS "/0", 0700) == 0 && mkdir(LAYERS "/1", 0700) == 0, LAYERS);
    check(show_owners(LOWER_FD, users) && attach(LOWER_FD, LAYERS "/0"), "a mount with other owners");
    check(mount("overlay", LAYERS "/1", "overlay", 0, "lowerdir=" LAYERS "/0:/run") == 0, "an overlay with other owners");
    return 0;
}

/* For a container that its runtime restored into a network namespace in which nothing is up. */
static int network(const char *pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    check(fd >= 0 && setns(fd, CLONE_NEWNET) == 0, "the sandbox's network namespace");
    set_network_up();
    return 0;
}

/* Gives a container's next process the id after `last`: the file refers to the writer's namespace, and only children
 * are in the one that was entered. */
static int number(const char *pid, const char *last) {
    char path[64];
    int status;
    snprintf(path, sizeof path, "/proc/%s/ns/pid", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    check(fd >= 0 && setns(fd, CLONE_NEWPID) == 0, "the sandbox's process namespace");
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        write_file("/proc/sys/kernel/ns_last_pid", last);
        _exit(0);
    }
    check(waitpid(child, &status, 0) == child, "waitpid");
    return status != 0;
}

int main(int argc, char **argv) {
    if (argc > 4 && strcmp(argv[1], "dump") == 0) {
        parse(argc, argv, 3);
        dump(argv[2]);
    }
    if (argc == 2 && strcmp(argv[1], "lacks") == 0) return lacks();
    if (argc == 6 && strcmp(argv[1], "owners") == 0 && strcmp(argv[3], "--ids") == 0) {
        O.id_base = strtoul(argv[4], NULL, 10);
        O.id_count = strtoul(argv[5], NULL, 10);
        return owners(argv[2]);
    }
    if (argc == 3 && strcmp(argv[1], "network") == 0) return network(argv[2]);
    if (argc == 4 && strcmp(argv[1], "number") == 0) return number(argv[2], argv[3]);
    if (argc < 3) return 2;
    parse(argc, argv, 2);
    if (strcmp(argv[1], "start") == 0) return start();
    if (strcmp(argv[1], "build") == 0) return build();
    if (strcmp(argv[1], "restore") == 0) restore();
    if (strcmp(argv[1], "hold") == 0) hold();
    return 2;
}
