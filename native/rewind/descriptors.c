#include "descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

enum { MOST_FILES = 4096, MOST_ATTRIBUTES = 16384 };
enum { GET_WRITE_HINT = 1035 }; /* F_GET_RW_HINT; newer than the headers of some systems */

static bool add_terminal(struct text *to, int fd) {
    struct termios modes;
    struct winsize size;
    struct pollfd room = {fd, POLLOUT, 0};
    int group = 0, alone = 0, locked = 0, packets = 0;
    memset(&modes, 0, sizeof modes);
    memset(&size, 0, sizeof size);
    tcgetattr(fd, &modes);
    ioctl(fd, TIOCGWINSZ, &size);
    ioctl(fd, TIOCGPGRP, &group);
    ioctl(fd, TIOCGEXCL, &alone);
    ioctl(fd, TIOCGPTLCK, &locked);
    ioctl(fd, TIOCGPKT, &packets);
    return add(to, &modes, sizeof modes) && add(to, &size, sizeof size) &&
           add_line(to, " %d %d %d %d %d\n", group, alone, locked, packets, poll(&room, 1, 0) == 0);
}

/* Extended attributes and access control lists, with their names. */
static bool add_attributes(struct text *to, int fd) {
    char names[MOST_ATTRIBUTES], value[MOST_ATTRIBUTES];
    ssize_t length = flistxattr(fd, names, sizeof names);
    bool good = length >= 0;
    for (ssize_t at = 0; good && at < length; at += (ssize_t)strlen(names + at) + 1) {
        ssize_t n = fgetxattr(fd, names + at, value, sizeof value);
        good = n >= 0 && add_line(to, "%s %zd ", names + at, n) && add(to, value, (size_t)n);
    }
    return good;
}

/* What an open file of a process is set to and, of a terminal or a pipe, holds, by a descriptor borrowed from it. */
static bool add_open_file(struct text *to, int pid, int number, const struct stat *about, bool in_memory) {
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    int fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, number, 0);
    if (process >= 0) close(process);
    if (fd < 0) return false;
    struct f_owner_ex owner = {0};
    uint64_t hint = 0;
    int unread = 0;
    if (S_ISFIFO(about->st_mode) || S_ISCHR(about->st_mode)) ioctl(fd, FIONREAD, &unread);
    fcntl(fd, F_GETOWN_EX, &owner);
    bool good = !isatty(fd) || add_terminal(to, fd);
    if (in_memory) {
        fcntl(fd, GET_WRITE_HINT, &hint);
        good = good && add_line(to, "seals %x hint %lu ", (unsigned)fcntl(fd, F_GET_SEALS), (unsigned long)hint);
        good = good && add_attributes(to, fd);
    }
    if (S_ISFIFO(about->st_mode)) good = good && add_line(to, "size of pipe %d ", fcntl(fd, F_GETPIPE_SZ));
    good = good && add(to, &owner, sizeof owner) && add_line(to, " %d %d\n", unread, fcntl(fd, F_GETSIG));
    close(fd);
    return good;
}

/* All of fdinfo but the position: a command's text is read on from where it stands, and of others the shell's state tells. */
static bool add_info(struct text *to, int pid, int number) {
    char path[64];
    struct text all = {0};
    snprintf(path, sizeof path, "fdinfo/%d", number);
    bool good = add_file(&all, pid, path) && all.data;
    for (char *line = all.data, *end; good && line && *line; line = end) {
        end = line + strcspn(line, "\n");
        end += *end == '\n';
        if (strncmp(line, "pos:", 4)) good = add(to, line, (size_t)(end - line));
    }
    free(all.data);
    return good;
}

/* Adds what a link of /proc/PID leads to; of a descriptor all else, too. */
bool add_link(struct text *to, int pid, const char *name) {
    char path[64], target[PATH_MAX];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) return true; /* namespaces of another kernel */
    target[n] = 0;
    /* Not by the C library's name for it, which only those of 2021 and later have. */
    if (syscall(SYS_newfstatat, AT_FDCWD, path, &about, 0)) return false;
    if (!add_line(to, "%s %s %lu:%lu\n", name, target, (unsigned long)about.st_dev, (unsigned long)about.st_ino)) return false;
    int number;
    if (sscanf(name, "fd/%d", &number) != 1) return true;
    return add_line(to, "mode %o of %u:%u\n", about.st_mode, about.st_uid, about.st_gid) && add_info(to, pid, number) &&
           add_open_file(to, pid, number, &about, strncmp(target, "/memfd:", 7) == 0);
}

static int by_number(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

bool add_descriptors(struct text *to, int pid) {
    static const size_t most = MOST_FILES;
    int *numbers = malloc(most * sizeof *numbers);
    size_t count = 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *directory = numbers ? opendir(path) : NULL;
    bool good = directory;
    for (struct dirent *entry; good && (entry = readdir(directory));) {
        if (entry->d_name[0] == '.') continue;
        if (count == most) good = false;
        else numbers[count++] = atoi(entry->d_name);
    }
    if (directory) closedir(directory);
    if (good) qsort(numbers, count, sizeof *numbers, by_number);
    for (size_t i = 0; good && i < count; i++) {
        snprintf(path, sizeof path, "fd/%d", numbers[i]);
        good = add_link(to, pid, path);
    }
    free(numbers);
    return good;
}
