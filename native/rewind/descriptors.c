#include "descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <linux/sockios.h>
#include <linux/un.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

enum { MOST_FILES = 4096, MOST_COMPARED = 64, MOST_ATTRIBUTES = 16384 };
enum { GET_WRITE_HINT = 1035 }; /* F_GET_RW_HINT; newer than the headers of some systems */

static bool add_terminal(struct text *to, int fd, const struct termios *modes) {
    struct winsize size;
    struct pollfd room = {fd, POLLOUT, 0};
    int group = 0, alone = 0, locked = 0, packets = 0;
    memset(&size, 0, sizeof size);
    ioctl(fd, TIOCGWINSZ, &size);
    ioctl(fd, TIOCGPGRP, &group);
    ioctl(fd, TIOCGEXCL, &alone);
    ioctl(fd, TIOCGPTLCK, &locked);
    ioctl(fd, TIOCGPKT, &packets);
    return add(to, modes, sizeof *modes) && add(to, &size, sizeof size) &&
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

/* The settings of an open file, and the amount of unread data of a terminal or a pipe. */
static bool add_open_file(struct text *to, int fd, const struct stat *about, bool in_memory) {
    struct f_owner_ex owner = {0};
    struct termios modes;
    uint64_t hint = 0;
    int unread = 0;
    bool good = true;
    if (S_ISFIFO(about->st_mode) || S_ISCHR(about->st_mode)) ioctl(fd, FIONREAD, &unread);
    fcntl(fd, F_GETOWN_EX, &owner);
    memset(&modes, 0, sizeof modes);
    if (S_ISCHR(about->st_mode) && tcgetattr(fd, &modes) == 0) good = add_terminal(to, fd, &modes);
    if (in_memory) {
        fcntl(fd, GET_WRITE_HINT, &hint);
        good = good && add_line(to, "seals %x hint %lu ", (unsigned)fcntl(fd, F_GET_SEALS), (unsigned long)hint);
        good = good && add_attributes(to, fd);
    }
    if (S_ISFIFO(about->st_mode)) good = good && add_line(to, "size of pipe %d ", fcntl(fd, F_GETPIPE_SZ));
    return good && add(to, &owner, sizeof owner) && add_line(to, " %d %d\n", unread, fcntl(fd, F_GETSIG));
}

/* All of fdinfo, the position only if wanted: a command's text is read on from there, and the shell's state covers
 * others. */
static bool add_info(struct text *to, const struct process *p, int number, bool with_position) {
    char path[64];
    struct text all = {0};
    snprintf(path, sizeof path, "fdinfo/%d", number);
    bool good = add_file(&all, p->directory, path) && all.data;
    for (char *line = all.data, *end; good && line && *line; line = end) {
        end = line + strcspn(line, "\n");
        end += *end == '\n';
        if (with_position || strncmp(line, "pos:", 4)) good = add(to, line, (size_t)(end - line));
    }
    free(all.data);
    return good;
}

static bool add_target(struct text *to, const struct process *p, const char *name, char target[PATH_MAX]) {
    ssize_t n = readlinkat(p->directory, name, target, PATH_MAX - 1);
    if (n < 0) return true; /* a namespace that this kernel lacks */
    target[n] = 0;
    return add_line(to, "%s %s\n", name, target);
}

bool add_link(struct text *to, const struct process *p, const char *name) {
    char target[PATH_MAX];
    return add_target(to, p, name, target);
}

static bool add_identity(struct text *to, const struct stat *about) {
    return add_line(to, "%lu:%lu\n", (unsigned long)about->st_dev, (unsigned long)about->st_ino);
}

/* Adds the target of a link in /proc/PID, and the identity of that file. */
bool add_place(struct text *to, const struct process *p, const char *name) {
    char target[PATH_MAX] = "";
    struct stat about;
    if (!add_target(to, p, name, target) || (p->exact && is_deleted(target))) return false;
    /* The system call, since only C libraries of 2021 and later have fstatat under one name. */
    return syscall(SYS_newfstatat, p->directory, name, &about, 0) == 0 && add_identity(to, &about) &&
           (!p->exact || add_line(to, "mode %o\n", about.st_mode)); /* CRIU restores no process whose files have another */
}

/* Whether an open file is the one with the shell's commands, which PID 1 writes again before each. Anybody may give
 * another file that name. */
static bool has_commands(struct process *p, int fd, const struct stat *about, const char *target) {
    if (strcmp(target, "/memfd:command (deleted)") || fcntl(fd, F_GET_SEALS) < 0) return false;
    if (p->first == p) p->commands = about->st_ino;
    return about->st_ino == p->first->commands;
}

/* Whether nothing of an open file can change that is not added here, apart from what is in the file: for rewind_see. */
static bool is_told(struct process *p, int fd, const struct stat *about, const char *target) {
    struct pollfd waiting = {fd, POLLIN, 0};
    int listens = 0, unread = 0;
    socklen_t length = sizeof listens;
    switch (about->st_mode & S_IFMT) {
    case S_IFCHR:
    case S_IFIFO: return ioctl(fd, FIONREAD, &unread) || !unread;
    case S_IFSOCK:
        return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens && poll(&waiting, 1, 0) == 0;
    case S_IFDIR: return !is_deleted(target);
    default: return has_commands(p, fd, about, target);
    }
}

/* Adds the mode and owners of the file that a Unix socket is bound to, which CRIU makes again. */
static bool add_bound_file(struct text *to, int fd) {
    struct stat about;
    int file = ioctl(fd, SIOCUNIXFILE);
    bool good = file >= 0 && syscall(SYS_fstat, file, &about) == 0 &&
                add_line(to, "bound to %o of %u:%u\n", about.st_mode, about.st_uid, about.st_gid);
    if (file >= 0) close(file);
    return good;
}

/* Adds all that is known of a descriptor, by a duplicate of it. */
static bool add_descriptor(struct text *to, struct process *p, int number) {
    char name[64], target[PATH_MAX] = "";
    struct stat about;
    snprintf(name, sizeof name, "fd/%d", number);
    int fd = (int)syscall(SYS_pidfd_getfd, p->handle, number, 0);
    bool good = fd >= 0 && syscall(SYS_fstat, fd, &about) == 0 && add_target(to, p, name, target) && add_identity(to, &about) &&
                add_line(to, "mode %o of %u:%u\n", about.st_mode, about.st_uid, about.st_gid);
    bool in_memory = strncmp(target, "/memfd:", 7) == 0;
    good = good && (!p->exact || is_told(p, fd, &about, target)) &&
           (!p->exact || !S_ISSOCK(about.st_mode) || add_bound_file(to, fd)) && add_info(to, p, number, p->exact && !in_memory) &&
           add_open_file(to, fd, &about, in_memory);
    if (fd >= 0) close(fd);
    return good;
}

/* Adds which descriptors are duplicates of one another: these share the position and the flags. */
static bool add_duplicates(struct text *to, const struct process *p, const int *numbers, size_t count) {
    bool good = count <= MOST_COMPARED;
    for (size_t i = 1; good && i < count; i++) {
        long other = 1;
        size_t first = 0;
        while (first < i && (other = syscall(SYS_kcmp, p->pid, p->pid, KCMP_FILE, numbers[first], numbers[i])) > 0) first++;
        good = other >= 0 && (first == i || add_line(to, "%d is %d\n", numbers[i], numbers[first]));
    }
    return good;
}

static int by_number(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

bool add_descriptors(struct text *to, struct process *p) {
    static const size_t most = MOST_FILES;
    int *numbers = malloc(most * sizeof *numbers), fd = openat(p->directory, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    size_t count = 0;
    DIR *directory = numbers && fd >= 0 ? fdopendir(fd) : NULL;
    bool good = directory;
    for (struct dirent *entry; good && (entry = readdir(directory));) {
        if (entry->d_name[0] == '.') continue;
        if (count == most) good = false;
        else numbers[count++] = atoi(entry->d_name);
    }
    if (directory) closedir(directory);
    else if (fd >= 0) close(fd);
    if (good) qsort(numbers, count, sizeof *numbers, by_number);
    for (size_t i = 0; good && i < count; i++) good = add_descriptor(to, p, numbers[i]);
    good = good && (!p->exact || add_duplicates(to, p, numbers, count));
    free(numbers);
    return good;
}
