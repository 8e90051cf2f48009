/* The raw floor: namespaces, an overlay and bash, and nothing else. It ends with bash.
 *
 *   floor LOWER SCRATCH BASE COUNT   SCRATCH holds upper/ and work/; user ids inside are BASE and COUNT-1 more
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int ok, const char *what) {
    if (ok) return;
    perror(what);
    exit(1);
}

static void write_map(long pid, const char *name, const char *map) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    int fd = open(path, O_WRONLY);
    check(fd >= 0 && write(fd, map, strlen(map)) == (ssize_t)strlen(map), path);
    close(fd);
}

static void inside(int go, const char *root) {
    char byte;
    check(read(go, &byte, 1) == 1, "start signal");
    check(setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0, "root");
    check(mount(root, root, NULL, MS_BIND, NULL) == 0 && chdir(root) == 0, root);
    check(mount("proc", "proc", "proc", 0, NULL) == 0, "proc");
    check(syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 && chdir("/") == 0, "pivot_root");
    close_range(3, ~0U, 0);
    execl("/bin/bash", "bash", "--noprofile", "--norc", NULL);
    _exit(127);
}

int main(int argc, char **argv) {
    char text[8192];
    int go[2];
    check(argc == 5, "arguments");
    check(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0, "unshare");
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    check(ioctl(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), SIOCSIFFLAGS, &up) == 0, "loopback");
    check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
    check(mount("tmpfs", "/run", "tmpfs", 0, "mode=0755") == 0, "tmpfs"); /* every user may pass through it */
    snprintf(text, sizeof text, "lowerdir=%s,upperdir=%s/upper,workdir=%s/work", argv[1], argv[2], argv[2]);
    check(mount("overlay", "/run", "overlay", 0, text) == 0, "overlay");
    check(pipe(go) == 0, "pipe");
    unsigned long flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
    long pid = syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
    check(pid >= 0, "clone");
    if (pid == 0) inside(go[0], "/run");
    snprintf(text, sizeof text, "0 %s %s\n", argv[3], argv[4]);
    write_map(pid, "uid_map", text);
    write_map(pid, "gid_map", text);
    check(write(go[1], "g", 1) == 1, "start signal");
    for (int i = 0; i < 3; i++) close(i);
    return waitpid(pid, NULL, 0) != pid;
}
