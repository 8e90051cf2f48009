#include "facts.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { MOST_FILES = 4096 };

/* Lines of /proc/PID/status that say what it may do, and what it does about signals. */
static const char *const STATUS[] = {
    "Umask", "Tgid", "NStgid", "Uid", "Gid", "Groups", "NSpid", "NSpgid", "NSsid", "VmLck", "VmPin",
    "Threads", "SigPnd", "ShdPnd", "SigIgn", "SigCgt", "Cap", "NoNewPrivs", "Seccomp", "Speculation",
    "Cpus_allowed:", "Mems_allowed:", "THP_enabled", "untag_mask", "x86_Thread", "CoreDumping",
};
static const char *const FILES[] = {
    "limits", "personality", "oom_score_adj", "coredump_filter", "timerslack_ns", "timers", "comm", "loginuid", "sessionid",
    "autogroup",
};
static const char *const LINKS[] = {
    "cwd", "root", "exe", "ns/cgroup", "ns/ipc", "ns/mnt", "ns/net", "ns/pid", "ns/pid_for_children", "ns/time",
    "ns/time_for_children", "ns/user", "ns/uts",
};

static bool add_status(struct text *to, int pid) {
    struct text all = {0};
    bool good = add_file(&all, pid, "status") && all.data;
    for (char *line = all.data, *end; good && line && *line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        size_t length = end ? (size_t)(end - line) + 1 : strlen(line);
        for (size_t i = 0; i < sizeof STATUS / sizeof *STATUS; i++)
            if (strncmp(line, STATUS[i], strlen(STATUS[i])) == 0) good = good && add(to, line, length);
    }
    free(all.data);
    return good;
}

/* Its place among processes and its scheduling: parent, group, session, terminal, priority, policy. */
static bool add_stat(struct text *to, int pid) {
    static const int wanted[] = {4, 5, 6, 7, 8, 18, 19, 20, 22, 38, 40, 41};
    struct text all = {0};
    bool good = add_file(&all, pid, "stat") && all.data;
    char *at = good ? strrchr(all.data, ')') : NULL;
    int field = 2;
    size_t next = 0;
    for (char *word = at ? strtok(at + 1, " ") : NULL; word && next < sizeof wanted / sizeof *wanted; word = strtok(NULL, " "))
        if (++field == wanted[next]) {
            good = good && add_line(to, "%s ", word);
            next++;
        }
    free(all.data);
    return good && at;
}

/* What an open file of a process is set to and, of a terminal or a pipe, holds, by a descriptor borrowed from it. */
static bool add_open_file(struct text *to, int pid, int number, bool queues) {
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    int fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, number, 0);
    if (process >= 0) close(process);
    if (fd < 0) return false;
    struct termios modes;
    struct winsize size;
    struct f_owner_ex owner = {0};
    struct pollfd room = {fd, POLLOUT, 0};
    int group = 0, unread = 0, stopped = 0;
    memset(&modes, 0, sizeof modes);
    memset(&size, 0, sizeof size);
    if (isatty(fd)) {
        tcgetattr(fd, &modes);
        ioctl(fd, TIOCGWINSZ, &size);
        ioctl(fd, TIOCGPGRP, &group);
        stopped = poll(&room, 1, 0) == 0;
    }
    if (queues) ioctl(fd, FIONREAD, &unread);
    fcntl(fd, F_GETOWN_EX, &owner);
    int signal = fcntl(fd, F_GETSIG);
    close(fd);
    return add(to, &modes, sizeof modes) && add(to, &size, sizeof size) && add(to, &owner, sizeof owner) &&
           add_line(to, " %d %d %d %d\n", group, unread, stopped, signal);
}

static bool add_link(struct text *to, int pid, const char *name) {
    char path[64], target[PATH_MAX];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) return true; /* namespaces of another kernel */
    target[n] = 0;
    if (stat(path, &about)) return false;
    if (!add_line(to, "%s %s %lu:%lu\n", name, target, (unsigned long)about.st_dev, (unsigned long)about.st_ino)) return false;
    int number;
    if (sscanf(name, "fd/%d", &number) != 1) return true;
    snprintf(path, sizeof path, "fdinfo/%d", number);
    struct text all = {0};
    bool good = add_file(&all, pid, path) && all.data;
    char *flags = good ? strstr(all.data, "flags:") : NULL;
    good = flags && add(to, flags, strcspn(flags, "\n"));
    free(all.data);
    return good && add_open_file(to, pid, number, S_ISFIFO(about.st_mode) || S_ISCHR(about.st_mode));
}

static int by_number(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

static bool add_descriptors(struct text *to, int pid) {
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

/* A program that a process runs for us: it asks for the handlers of all signals and for the other stack, and stops.
 *     mov ebx,1; 1: mov eax,rt_sigaction; mov edi,ebx; xor esi,esi; mov rdx,rbx; shl rdx,5; add rdx,r12; mov r10d,8; syscall;
 *     inc ebx; cmp ebx,65; jne 1b; mov eax,sigaltstack; xor edi,edi; mov rsi,r12; syscall; int3 */
static const unsigned char ASKING[] = {
    0xbb, 1, 0, 0, 0, 0xb8, 13, 0, 0, 0, 0x89, 0xdf, 0x31, 0xf6, 0x48, 0x89, 0xda, 0x48, 0xc1, 0xe2, 5, 0x4c, 0x01, 0xe2,
    0x41, 0xba, 8, 0, 0, 0, 0x0f, 0x05, 0xff, 0xc3, 0x83, 0xfb, 65, 0x75, 0xde, 0xb8, 131, 0, 0, 0, 0x31, 0xff,
    0x4c, 0x89, 0xe6, 0x0f, 0x05, 0xcc,
};

/* Whether it neither blocks nor ignores SIGTRAP: the kernel would make that the default when we have it stop. */
static bool may_be_stepped(const struct text *status) {
    static const char *const lines[] = {"SigBlk:", "SigIgn:"};
    for (int i = 0; i < 2; i++) {
        unsigned long long signals;
        const char *line = status->data ? strstr(status->data, lines[i]) : NULL;
        if (!line || sscanf(line + 7, "%llx", &signals) != 1 || signals >> (SIGTRAP - 1) & 1) return false;
    }
    return true;
}

/* Its handlers of signals, and its other stack for them. Asked of the process itself: /proc tells only which it catches. */
static bool add_handlers(struct text *to, struct process *p, const struct user_regs_struct *at) {
    struct text status = {0};
    bool good = add_file(&status, p->pid, "status") && may_be_stepped(&status);
    free(status.data);
    long page = -1, result = -1;
    char said[PAGE];
    if (!good || !call(p, at, SYS_mmap, 0, 2 * PAGE, 7, 0x22, &page) || page < 0) return false; /* private, of no file */
    struct user_regs_struct registers = *at;
    registers.orig_rax = (unsigned long)-1;
    registers.rip = (unsigned long)page;
    registers.r12 = (unsigned long)page + PAGE;
    good = pwrite(p->memory, ASKING, sizeof ASKING, page) == (ssize_t)sizeof ASKING && set_registers(p, &registers) &&
           ptrace(PTRACE_CONT, p->pid, 0, 0) == 0;
    int status_of_it = good ? await_stop(p->pid) : NONE;
    keep_signal(p, status_of_it);
    p->broken |= good && status_of_it == NONE;
    good = status_of_it != NONE && WSTOPSIG(status_of_it) == SIGTRAP && get_registers(p, &registers) &&
           registers.rip == (unsigned long)page + sizeof ASKING && registers.rax == 0 &&
           pread(p->memory, said, PAGE, page + PAGE) == PAGE && add(to, said, PAGE);
    return call(p, at, SYS_munmap, page, 2 * PAGE, 0, 0, &result) && result == 0 && good;
}

bool add_facts(struct text *to, struct process *p, const struct user_regs_struct *at) {
    bool good = add_status(to, p->pid) && add_stat(to, p->pid);
    for (size_t i = 0; good && i < sizeof FILES / sizeof *FILES; i++)
        good = add(to, FILES[i], strlen(FILES[i])) && add_file(to, p->pid, FILES[i]);
    for (size_t i = 0; good && i < sizeof LINKS / sizeof *LINKS; i++) good = add_link(to, p->pid, LINKS[i]);
    return good && add_descriptors(to, p->pid) && add_handlers(to, p, at);
}
