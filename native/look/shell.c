#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/proc.h"
#include "look.h"
#include "memory.h"
#include "result.h"

enum {
    LONGEST_STATUS = 1 << 20, /* a process may belong to 65,536 groups, with ten digits each */
    USUAL_STATUS = 4096,
    LONGEST_INFO = 4096,
    LONGEST_NAME = 64,
};

/* Adds a process' CPU affinity, as /proc shows it. */
static int add_processors(struct text *to, int pid, char *status, size_t room) {
    static const char name[] = "\nCpus_allowed:\t";
    ssize_t n = read_proc(pid, "status", status, room);
    if (n < 0) return errno;
    const char *value = strstr(status, name);
    if (value) return add_text(to, value + sizeof name - 1, strcspn(value + sizeof name - 1, "\n")) ? 0 : ENOMEM;
    if ((size_t)n < room - 1 || room >= LONGEST_STATUS) return 0;
    char *all = malloc(LONGEST_STATUS);
    int error = all ? add_processors(to, pid, all, LONGEST_STATUS) : ENOMEM;
    free(all);
    return error;
}

/* Finds whether the kernel will signal a process about events of an open file. */
static int find_signalled(int process, int number, bool *signalled) {
    struct f_owner_ex owner = {0};
    int fd = (int)syscall(SYS_pidfd_getfd, process, number, 0);
    if (fd < 0) return errno;
    *signalled = fcntl(fd, F_GETOWN_EX, &owner) || owner.pid || fcntl(fd, F_GETSIG);
    close(fd);
    return 0;
}

/* Adds `NUMBER POSITION FLAGS LOCKED SIGNALLED TARGET` and a zero byte for a descriptor. */
static int add_descriptor(struct text *to, int pid, int process, const char *number) {
    char name[LONGEST_NAME], info[LONGEST_INFO], target[PATH_MAX], line[2 * LONGEST_NAME], flags[32];
    long long position;
    bool signalled = false;
    snprintf(name, sizeof name, "/proc/%d/fd/%.20s", pid, number);
    ssize_t n = readlink(name, target, sizeof target), told;
    if (n < 0) return errno;
    snprintf(name, sizeof name, "fdinfo/%.20s", number);
    if ((told = read_proc(pid, name, info, sizeof info)) < 0) return errno;
    if (sscanf(info, "pos: %lld flags: %31s", &position, flags) != 2) return EIO;
    bool locked = strstr(info, "\nlock:") || (size_t)told == sizeof info - 1; /* or info may be incomplete */
    int error = find_signalled(process, atoi(number), &signalled);
    if (error) return error;
    int length = snprintf(line, sizeof line, "%.20s %lld %s %d %d ", number, position, flags, locked, signalled);
    return add_text(to, line, (size_t)length) && add_text(to, target, (size_t)n) && add_text(to, "", 1) ? 0 : ENOMEM;
}

static int add_descriptors(struct text *to, int pid, int process) {
    char name[LONGEST_NAME];
    snprintf(name, sizeof name, "/proc/%d/fd", pid);
    DIR *d = opendir(name);
    int error = d ? 0 : errno;
    for (struct dirent *e; !error && (e = readdir(d));) {
        error = *e->d_name == '.' ? 0 : add_descriptor(to, pid, process, e->d_name);
        if (error == ENOENT || error == EBADF) error = 0; /* closed meanwhile */
    }
    if (d) closedir(d);
    return error;
}

/* Finds what a shell holds but does not report: `START NICE DELETED PROCESSORS`, the third of which is 1 if its
 * directory was deleted, then `NUMBER POSITION FLAGS LOCKED SIGNALLED TARGET` for each descriptor; each with a zero
 * byte. */
int look_shell(int pid, struct told *told) {
    static const char gone[] = " (deleted)";
    static const size_t mark = sizeof gone - 1;
    char directory[PATH_MAX], line[2 * LONGEST_NAME], status[USUAL_STATUS];
    struct text found = {0};
    struct life life;
    snprintf(line, sizeof line, "/proc/%d/cwd", pid);
    int process = open_process(pid);
    int error = process >= 0 ? 0 : errno;
    if (!error && !read_life(pid, &life)) error = ESRCH;
    ssize_t n = error ? 0 : readlink(line, directory, sizeof directory);
    if (n < 0) error = errno;
    bool deleted = n >= (ssize_t)mark && memcmp(directory + n - mark, gone, mark) == 0;
    int length = snprintf(line, sizeof line, "%llu %ld %d ", life.start, life.nice, deleted);
    if (!error && !add_text(&found, line, (size_t)length)) error = ENOMEM;
    if (!error) error = add_processors(&found, pid, status, sizeof status);
    if (!error && !add_text(&found, "", 1)) error = ENOMEM;
    if (!error) error = add_descriptors(&found, pid, process);
    if (process >= 0) close(process);
    return tell(told, &found, error);
}
