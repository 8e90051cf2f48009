/* See owners.h. */
#include "owners.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/nsfs.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT ((uid_t)-1)

static int wait_for_signals(void *unused) {
    (void)unused;
    while (pause());
    return 0;
}

/* A process of ours and its pidfd, by which it is killed, since its id may have been reused by then. */
struct holder {
    pid_t pid;
    int process;
};

static void end(struct holder h) {
    siginfo_t end;
    syscall(SYS_pidfd_send_signal, h.process, SIGKILL, NULL, 0);
    waitid(P_PIDFD, (id_t)h.process, &end, WEXITED);
    close(h.process);
}

/* Starts a waiting process in a new user namespace that belongs to `owner`. Its pid is -1 on failure. */
static struct holder hold_namespace(uid_t owner) {
    static char stack[4096] __attribute__((aligned(16))); /* the process shares our memory, which takes half the time */
    struct holder h = {-1, -1};
    int usual = prctl(PR_GET_SECUREBITS);
    /* The namespace belongs to the effective user, and changing that keeps capabilities only with this flag. */
    if (usual < 0 || prctl(PR_SET_SECUREBITS, usual | SECBIT_NO_SETUID_FIXUP) || setresuid(KEPT, owner, KEPT))
        return h;
    int flags = CLONE_NEWUSER | CLONE_VM | CLONE_PIDFD | SIGCHLD;
    h.pid = clone(wait_for_signals, stack + sizeof stack, flags, NULL, &h.process);
    if (setresuid(KEPT, getuid(), KEPT) == 0 && prctl(PR_SET_SECUREBITS, usual) == 0) return h;
    if (h.pid > 0) end(h);
    h.pid = -1;
    return h;
}

static bool write_map(pid_t pid, const char *name, const char *map) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, map, strlen(map)) == (ssize_t)strlen(map);
    if (fd >= 0) close(fd);
    return written;
}

int open_namespace(uid_t owner, const char *users, const char *groups) {
    char path[64];
    int fd = -1;
    struct holder h = hold_namespace(owner);
    if (h.pid < 0) return -1;
    if (write_map(h.pid, "uid_map", users) && write_map(h.pid, "gid_map", groups)) {
        snprintf(path, sizeof path, "/proc/%d/ns/user", (int)h.pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    end(h);
    return fd;
}

int open_users(uid_t owner, unsigned long first, unsigned long shown, unsigned long count) {
    char users[96], groups[96];
    snprintf(users, sizeof users, "0 0 1\n%lu %lu %lu\n", first, shown, count);
    snprintf(groups, sizeof groups, "0 0 1\n%lu %lu %lu\n", first, first, count);
    return open_namespace(owner, users, groups);
}

uid_t owner_of_users(const char *pid) {
    char path[64];
    uid_t owner = 0;
    snprintf(path, sizeof path, "/proc/%s/ns/user", pid);
    int own = open(path, O_RDONLY | O_CLOEXEC), users = ioctl(own, NS_GET_PARENT);
    if (users < 0 || ioctl(users, NS_GET_OWNER_UID, &owner)) owner = 0;
    if (users >= 0) close(users);
    if (own >= 0) close(own);
    return owner;
}

bool show_owners(int directory, int users) {
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)users};
    int mount = (int)syscall(SYS_open_tree, directory, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (mount < 0) return false;
    bool shown = syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0 &&
                 dup3(mount, directory, O_CLOEXEC) >= 0;
    close(mount);
    return shown;
}

bool attach(int directory, const char *at) {
    return syscall(SYS_move_mount, directory, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) == 0;
}
