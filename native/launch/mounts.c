#include "mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checks.h"
#include "options.h"
#include "owners.h"

#define POOL "/run/pool"
#define NEW "/run/new"
#define NODES "/run/dev" /* also used by snapshot_store.py */

enum { UPPER_FD = 100, KEPT_FD = 120, CACHE_FD = 140 };

static void move_fd(const char *path, int number) {
    int fd = open(path, O_PATH | O_DIRECTORY);
    check(fd >= 0, path);
    check(dup3(fd, number, O_CLOEXEC) >= 0, "dup3");
    close(fd);
}

/* xino: inode numbers are those of the layers, so that they are the same in each mount of a copy; without it,
 * directories are numbered as they are used, and a file of the image gets another number when it is written. uuid:
 * the file system keeps its id in the upper layer, and reports it in each mount of a copy, not only in the first
 * (kernels before 5.14 do not know this option). The others are set independently of this machine's defaults: the
 * upper layer has all that differs, complete, under its name. */
#define OVERLAY_UUID "uuid=on,"
#define OVERLAY_OPTIONS "xino=on,index=off,redirect_dir=off,metacopy=off"

/* Creates device nodes at NODES that no other sandbox has: whoever can open a node can also lock and touch it. If
 * none can be created, as in a container without that right, the host's are used. */
void make_devices(void) {
    char from[64], path[64];
    struct stat st;
    check(mkdir(NODES, 0755) == 0, NODES);
    check(mount("tmpfs", NODES, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,nr_inodes=16,size=4k") == 0, "mount of " NODES);
    for (int i = 0; i < O.device_count; i++) {
        snprintf(from, sizeof from, "/dev/%s", O.devices[i]);
        snprintf(path, sizeof path, NODES "/%s", O.devices[i]);
        check(stat(from, &st) == 0, from);
        if (mknod(path, S_IFCHR | 0600, st.st_rdev) == 0) {
            check(chmod(path, 0666) == 0, path);
            continue;
        }
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        check(fd >= 0 && close(fd) == 0 && mount(from, path, NULL, MS_BIND, NULL) == 0, from);
    }
}

void private_mounts(void) {
    check(unshare(CLONE_NEWNS) == 0, "mount namespace");
    check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
}

/* Enters a new mount namespace in which a tmpfs hides the host's /run; what is needed of it is open by then. */
void own_mounts(void) {
    char path[4096];
    private_mounts();
    for (int i = 0; i < O.lower_count; i++) move_fd(O.lowers[i], LOWER_FD + i);
    for (int i = 0; i < O.kept_count; i++) move_fd(O.kept[i], KEPT_FD + i);
    if (O.cache) move_fd(O.cache, CACHE_FD);
    if (O.pool_dir) {
        snprintf(path, sizeof path, "%s/%s", O.pool_dir, O.live);
        move_fd(path, UPPER_FD);
    }
    check(mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") == 0, "mount of /run");
}

static bool mount_overlay(void) {
    char options[512];
    int n = snprintf(options, sizeof options, OVERLAY_UUID OVERLAY_OPTIONS ",upperdir=/proc/self/fd/%d/upper,workdir=/proc/self/fd/%d/work,lowerdir=",
                     UPPER_FD, UPPER_FD);
    for (int i = 0; i < O.lower_count; i++)
        n += snprintf(options + n, sizeof options - (size_t)n, "%s/proc/self/fd/%d", i ? ":" : "", LOWER_FD + i);
    const char *known = options;
    if (mount("overlay", ROOT, "overlay", MS_NOATIME | MS_NODEV, known) == 0) return true;
    if (errno == EINVAL) known += strlen(OVERLAY_UUID);
    return mount("overlay", ROOT, "overlay", MS_NOATIME | MS_NODEV, known) == 0;
}

/* Mounts the overlay on layers that show_owners has mounted; before Linux 6.15 those must be attached somewhere. */
static bool mount_overlay_on_detached(void) {
    char at[64];
    if (mount_overlay()) return true;
    check(mkdir(LAYERS, 0700) == 0, LAYERS);
    for (int i = 0; i <= O.lower_count; i++) {
        snprintf(at, sizeof at, LAYERS "/%d", i);
        check(mkdir(at, 0700) == 0, at);
        if (!attach(UPPER_FD + i, at)) return false;
    }
    return mount_overlay();
}

/* Mounts the overlay such that all files belong to the sandbox's own users. Returns a descriptor of the namespace in
 * which those have the ids on disk; -1 if nothing was mounted, because this is impossible here. */
static int mount_own_overlay(void) {
    int on_disk[1 + MAX_LOWERS], users = open_users((uid_t)O.own_base, O.id_base, O.own_base, O.id_count);
    bool shown = users >= 0;
    for (int i = 0; i <= O.lower_count; i++) check((on_disk[i] = fcntl(UPPER_FD + i, F_DUPFD_CLOEXEC, USERS_FD)) >= 0, "dup");
    for (int i = 0; shown && i <= O.lower_count; i++) shown = show_owners(UPPER_FD + i, users);
    if (shown && mount_overlay_on_detached()) return users;
    for (int i = 0; i <= O.lower_count; i++) check(dup3(on_disk[i], UPPER_FD + i, O_CLOEXEC) >= 0, "dup3");
    if (users >= 0) close(users);
    return -1;
}

/* Mounts the sandbox's root at ROOT, in our own /run: every user can pass through it, which the data directory need not
 * allow. No path of the host is visible inside.
 *
 * Returns a descriptor of the user namespace that has to contain the sandbox's; -1 for our own. */
int mount_root(void) {
    char path[4096];
    check(mkdir(ROOT, 0755) == 0, ROOT);
    if (O.pool) {
        check(mkdir(POOL, 0700) == 0, POOL);
        check(mount(O.pool, POOL, "btrfs", MS_NOATIME, "user_subvol_rm_allowed") == 0, "mount of the pool");
        snprintf(path, sizeof path, POOL "/%s", O.live);
        move_fd(path, UPPER_FD);
    }
    int users = O.own_base ? mount_own_overlay() : -1;
    if (users < 0) {
        check(mount_overlay(), "mount of the root");
        /* Some resources are counted only for a namespace's owner. */
        if (O.own_base) users = open_users((uid_t)O.own_base, O.id_base, O.id_base, O.id_count);
    }
    if (O.pool) check(umount2(POOL, MNT_DETACH) == 0, "unmount of the pool");
    make_devices();
    return users;
}

/* Shows a directory at a path below NEW. */
static void show(const char *from, const char *at, unsigned long flags) {
    char path[4096];
    snprintf(path, sizeof path, NEW "%s/", at);
    for (char *slash = strchr(path + strlen(NEW) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        check(mkdir(path, 0755) == 0 || errno == EEXIST, path);
        *slash = '/';
    }
    check(mount(from, path, NULL, flags, NULL) == 0, at);
}

static void keep(int fd, const char *at) {
    char from[64];
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    show(from, at, MS_BIND);
}

/* Hides the host's files, except what CRIU needs to run: as root of this machine, it follows paths, and symbolic
 * links in them, that a sandbox has made. */
void leave_host(bool with_root) {
    check(mkdir(NEW, 0755) == 0 && mount("tmpfs", NEW, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") == 0, "mount of " NEW);
    for (int i = 0; i < O.kept_count; i++) keep(KEPT_FD + i, O.kept[i]);
    if (O.cache) keep(CACHE_FD, "/dev/shm");
    show("/proc", "/proc", MS_BIND);
    check(mkdir(NEW "/tmp", 0755) == 0 || errno == EEXIST, "/tmp");
    if (with_root) show(ROOT, ROOT, MS_MOVE);
    show(NODES, NODES, MS_MOVE);
    check(symlink(NODES "/null", NEW "/dev/null") == 0, "/dev/null");
    /* CRIU checks whether a sandbox's devpts is the host's. */
    check(mkdir(NEW "/dev/pts", 0755) == 0 && mount("devpts", NEW "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance") == 0,
          "/dev/pts");
    check(chdir(NEW) == 0 && syscall(SYS_pivot_root, ".", ".") == 0, "pivot_root");
    check(umount2(".", MNT_DETACH) == 0 && chdir("/") == 0, "unmount of the host's root");
}

/* Makes the working directory the root, with devices, terminals and processes, in the order in which CRIU mounts
 * them. All sandboxes share the 3072 terminals that Linux allows containers. */
void enter_root(unsigned long tty_group) {
    char text[96];
    for (int i = 0; i < O.device_count; i++) {
        snprintf(text, sizeof text, NODES "/%s", O.devices[i]);
        check(mount(text, text + strlen("/run/"), NULL, MS_BIND, NULL) == 0, text);
    }
    snprintf(text, sizeof text, "newinstance,ptmxmode=0666,mode=0620,gid=%lu,max=64", tty_group);
    check(mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, text) == 0, "mount of /dev/pts");
    check(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0, "mount of /proc");
    check(syscall(SYS_pivot_root, ".", ".") == 0, "pivot_root");
    check(umount2(".", MNT_DETACH) == 0, "unmount of the host's root");
    check(chdir("/") == 0, "/");
}

/* Enters the only lower layer, mounted at ROOT with a separate /dev: a device node in it would be the host's own. */
void mount_tree(void) {
    static const char *const links[][2] = {{"fd", "fd"}, {"stdin", "fd/0"}, {"stdout", "fd/1"}, {"stderr", "fd/2"}};
    char text[64];
    snprintf(text, sizeof text, "/proc/self/fd/%d", LOWER_FD);
    check(mkdir(ROOT, 0755) == 0 && mount(text, ROOT, NULL, MS_BIND, NULL) == 0, ROOT);
    check(mount(NULL, ROOT, NULL, MS_REMOUNT | MS_BIND | MS_NODEV, NULL) == 0 && chdir(ROOT) == 0, ROOT);
    make_devices();
    check(mount("tmpfs", "dev", "tmpfs", MS_NOSUID, "mode=755,size=65536k") == 0 && chdir("dev") == 0, "mount of /dev");
    for (int i = 0; i < O.device_count; i++) check(mknod(O.devices[i], S_IFREG | 0600, 0) == 0, O.devices[i]);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        snprintf(text, sizeof text, "/proc/self/%s", links[i][1]);
        check(symlink(text, links[i][0]) == 0, links[i][0]);
    }
    check(mkdir("shm", 0755) == 0 && chmod("shm", 01777) == 0 && mkdir("pts", 0755) == 0, "/dev");
    check(symlink("pts/ptmx", "ptmx") == 0 && chdir("..") == 0, "/dev");
}
