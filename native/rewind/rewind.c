/* What the processes of ours in a sandbox (PID 1 and the idle shell) are, seen and set from outside.
 *
 * Whatever runs in a sandbox may lie, and with it the shell that says that nothing has changed. So nobody takes its word:
 * `rewind_note` takes down what a process is while it stands still, and `rewind_to` makes it that again after a
 * call that is said to have changed nothing. What can be set is set: memory and where it lies, registers. What cannot is
 * compared: mappings of files, pages of read-only files that are the process' own, descriptors, credentials, signal
 * handlers, limits, terminals. Where any of that differs, the process is another, and so is the state.
 *
 * A library for Python (rewind.py). What stops processes lets go of them in the same thread, as ptrace(2) wants it; when
 * the thread ends, the kernel does. x86-64 only: elsewhere there is no evidence. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__

enum { MOST_PROCESSES = 2, MOST_XSTATE = 16384, MOST_FACTS = 1 << 20, MOST_FILES = 4096, PAGE = 4096 };
enum { MOST_MEMORY = 64 << 20 }; /* bytes that are kept of one process */
enum { NONE = -1 };
enum { SHORTEST_US = 20, LONGEST_US = 3000000 }; /* between two looks at a process, and for it to stop */
#define PLAIN "rd wr mr mw me ac " /* VmFlags of memory that a process got from mmap, and did nothing else to */
#define OWN_PAGE(entry) ((entry) >> 62 && !((entry) >> 61 & 1)) /* present or swapped, and no page of a file */

struct text {
    char *data;
    size_t length, room;
};

/* A run of memory with the same rights, and the pages of it that are the process' own. Others are a file's, or empty. */
struct mapping {
    uint64_t start, end;
    bool writable, of_a_file;
    bool plain;    /* of no file, and as mmap made it: another can be made in its place */
    uint64_t *own; /* addresses of its own pages; of a writable one of a file, those of all */
    char *data;    /* what they held */
    size_t owns;   /* how many there are */
};

/* The memory of a process that is looked at, in the order of addresses. */
struct layout {
    uint64_t heap_end, stack_start; /* what lies outside of them is of no use to anybody */
    struct text fixed;              /* a line for each mapping that cannot be set */
    struct mapping *mappings;       /* neighbours of plain ones are one */
    size_t count;
};

struct process {
    int pid, memory; /* memory: its /proc/PID/mem, while it is stopped */
    int signal;      /* that it was about to be delivered when it stopped: delivered when it goes on; 0 for none */
    bool broken;     /* it did not come back from what it does for us */
    struct user_regs_struct registers;
    char xstate[MOST_XSTATE];
    size_t xstate_length;
    uint64_t blocked; /* signals */
    struct text facts;
    struct layout was;
};

struct note {
    struct process processes[MOST_PROCESSES];
    int count;
};

struct reason {
    char *text;
    size_t room;
};

static bool fail(struct reason *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, why->room, format, arguments);
    va_end(arguments);
    return false;
}

static bool add(struct text *to, const void *data, size_t length) {
    if (to->length + length + 1 > to->room) {
        size_t room = (to->length + length + 1) * 2;
        char *grown = realloc(to->data, room);
        if (!grown) return false;
        to->data = grown;
        to->room = room;
    }
    memcpy(to->data + to->length, data, length);
    to->length += length;
    to->data[to->length] = 0;
    return true;
}

static bool add_line(struct text *to, const char *format, ...) {
    char line[PATH_MAX + 256];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return n >= 0 && (size_t)n < sizeof line && add(to, line, (size_t)n);
}

/* Adds a file of a process, of at most MOST_FACTS bytes. */
static bool add_file(struct text *to, int pid, const char *name) {
    char path[64], chunk[65536];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT && access("/proc/self/stat", R_OK) == 0 && kill(pid, 0) == 0; /* no such file here */
    ssize_t n;
    size_t begun = to->length;
    bool fits = true;
    while (fits && (n = read(fd, chunk, sizeof chunk)) > 0)
        fits = to->length - begun + (size_t)n <= MOST_FACTS && add(to, chunk, (size_t)n);
    close(fd);
    return fits;
}

/* -- stopping and going on -- */

/* Waits for a process to stop; returns its wait status, or NONE. Not without end: PID 1 that is killed waits for all that
 * lives in its namespace, and so for a shell that we have stopped. */
static int await_stop(int pid) {
    int status;
    for (long pause = SHORTEST_US, waited = 0; waited < LONGEST_US; waited += pause, pause += pause / 2) {
        pid_t found = waitpid(pid, &status, __WALL | WNOHANG);
        if (found) return found == pid && WIFSTOPPED(status) ? status : NONE;
        struct timespec time = {pause / 1000000, pause % 1000000 * 1000};
        nanosleep(&time, NULL);
    }
    return NONE;
}

/* Takes note of a signal that a process has stopped for, which is not one of ours. */
static void keep_signal(struct process *p, int status) {
    if (status != NONE && status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP) p->signal = WSTOPSIG(status);
}

static bool stop(struct process *p, struct reason *why) {
    p->signal = 0;
    if (ptrace(PTRACE_SEIZE, p->pid, 0, 0)) return fail(why, "process %d cannot be stopped: %s", p->pid, strerror(errno));
    if (ptrace(PTRACE_INTERRUPT, p->pid, 0, 0)) return fail(why, "process %d does not stop: %s", p->pid, strerror(errno));
    int status = await_stop(p->pid);
    keep_signal(p, status);
    if (status == NONE || status >> 16 != PTRACE_EVENT_STOP || WSTOPSIG(status) != SIGTRAP)
        return fail(why, "process %d does not stand still", p->pid);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", p->pid);
    p->memory = open(path, O_RDWR | O_CLOEXEC);
    return p->memory >= 0 || fail(why, "the memory of process %d: %s", p->pid, strerror(errno));
}

/* -- system calls that a stopped process makes for us -- */

static bool set_registers(struct process *p, const struct user_regs_struct *registers) {
    struct iovec part = {(void *)registers, sizeof *registers};
    return ptrace(PTRACE_SETREGSET, p->pid, NT_PRSTATUS, &part) == 0;
}

static bool get_registers(struct process *p, struct user_regs_struct *registers) {
    struct iovec part = {registers, sizeof *registers};
    return ptrace(PTRACE_GETREGSET, p->pid, NT_PRSTATUS, &part) == 0;
}

/* Whether a process waits in a system call. */
static bool waits(struct process *p, const struct user_regs_struct *registers) {
    uint16_t instruction = 0;
    return (long)registers->orig_rax >= 0 && (long)registers->rax < 0 &&
           pread(p->memory, &instruction, 2, (off_t)registers->rip - 2) == 2 && instruction == 0x050f;
}

static bool call(struct process *p, const struct user_regs_struct *at, long number, long a, long b, long c, long d, long *result) {
    struct user_regs_struct registers = *at;
    registers.rip -= 2; /* the instruction in which it waits */
    registers.orig_rax = (unsigned long)-1;
    registers.rax = (unsigned long)number;
    registers.rdi = (unsigned long)a;
    registers.rsi = (unsigned long)b;
    registers.rdx = (unsigned long)c;
    registers.r10 = (unsigned long)d;
    registers.r8 = (unsigned long)-1; /* of mmap: no file */
    registers.r9 = 0;
    if (!set_registers(p, &registers) || ptrace(PTRACE_SINGLESTEP, p->pid, 0, 0)) return false;
    int status = await_stop(p->pid);
    keep_signal(p, status);
    p->broken |= status == NONE;
    if (status == NONE || WSTOPSIG(status) != SIGTRAP || !get_registers(p, &registers)) return false;
    *result = (long)registers.rax;
    return registers.rip == at->rip;
}

/* Has a system call that our stop interrupted begin again, where the kernel would not: some return EINTR at once. */
static void begin_again(struct process *p) {
    struct user_regs_struct registers;
    if (p->signal || p->memory < 0 || !get_registers(p, &registers) || !waits(p, &registers)) return;
    if ((long)registers.rax != -EINTR) return;
    registers.rax = registers.orig_rax;
    registers.rip -= 2;
    registers.orig_rax = (unsigned long)-1;
    set_registers(p, &registers);
}

/* Lets the processes go on; all are ended where one is amid what it was to do for us. */
static bool let_go(struct note *note, int count) {
    bool broken = false;
    for (int i = 0; i < count; i++) broken |= note->processes[i].broken;
    for (int i = 0; i < count; i++) {
        struct process *p = &note->processes[i];
        if (broken) kill(p->pid, SIGKILL);
        else begin_again(p);
        if (p->memory >= 0) close(p->memory);
        p->memory = -1;
        ptrace(PTRACE_DETACH, p->pid, 0, p->signal);
    }
    return !broken;
}

/* -- what it is -- */

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

static bool add_facts(struct text *to, struct process *p, const struct user_regs_struct *at) {
    bool good = add_status(to, p->pid) && add_stat(to, p->pid);
    for (size_t i = 0; good && i < sizeof FILES / sizeof *FILES; i++)
        good = add(to, FILES[i], strlen(FILES[i])) && add_file(to, p->pid, FILES[i]);
    for (size_t i = 0; good && i < sizeof LINKS / sizeof *LINKS; i++) good = add_link(to, p->pid, LINKS[i]);
    return good && add_descriptors(to, p->pid) && add_handlers(to, p, at);
}

/* -- memory -- */

/* One mapping as /proc/PID/smaps tells of it. */
struct told {
    unsigned long start, end;
    char rights[5];
    char flags[128];  /* VmFlags, but for what says that a page was written */
    const char *name; /* as long as the text lives */
};

static bool add_mapping(struct layout *to, const struct told *m) {
    bool plain = !*m->name && strcmp(m->rights, "rw-p") == 0 && strcmp(m->flags, PLAIN) == 0;
    struct mapping *last = to->count ? &to->mappings[to->count - 1] : NULL;
    if (plain && last && last->plain && last->end == m->start) {
        last->end = m->end;
        return true;
    }
    struct mapping *grown = realloc(to->mappings, (to->count + 1) * sizeof *grown);
    if (!grown) return false;
    to->mappings = grown;
    grown[to->count++] = (struct mapping){.start = m->start, .end = m->end, .writable = m->rights[1] == 'w',
                                          .of_a_file = isxdigit((unsigned char)*m->name), .plain = plain};
    return true;
}

/* Adds a mapping to what is looked at; the heap and the stack only as far as `to` says. */
static bool take_mapping(struct process *p, struct layout *to, struct told m, struct reason *why) {
    uint64_t start = m.start, end = m.end;
    if (strcmp(m.name, "[heap]") == 0) {
        end = 0;
        if (m.end > to->heap_end) m.end = (to->heap_end + PAGE - 1) / PAGE * PAGE;
    } else if (strcmp(m.name, "[stack]") == 0) {
        start = 0;
        if (!to->stack_start) to->stack_start = m.start;
        if (m.start > to->stack_start) return fail(why, "process %d has a shorter stack", p->pid);
        m.start = to->stack_start;
    }
    bool of_the_kernel = strncmp(m.name, "[vvar", 5) == 0 || strcmp(m.name, "[vsyscall]") == 0;
    if (m.rights[3] == 's' && m.rights[1] == 'w') return fail(why, "process %d shares memory with others", p->pid);
    bool seen = !of_the_kernel && m.rights[3] != 's' && (m.rights[0] == 'r' || m.rights[1] == 'w');
    if (seen && (m.start >= m.end || !add_mapping(to, &m))) return fail(why, "there is no memory for a mapping");
    if (seen && to->mappings[to->count - 1].plain) return true;
    return add_line(&to->fixed, "%lx-%lx %s %s %s\n", (unsigned long)start, (unsigned long)end, m.rights, m.name, m.flags) ||
           fail(why, "a mapping of process %d has too long a name", p->pid);
}

/* Reads where the memory of a process lies. Which file a mapping is of is told by device and inode, before its name. */
static bool read_layout(struct process *p, struct layout *to, struct reason *why) {
    struct text all = {0};
    struct told m = {.name = NULL}, next = m;
    bool good = (add_file(&all, p->pid, "smaps") && all.data) || fail(why, "the mappings of process %d cannot be read", p->pid);
    for (char *line = all.data, *end; good && line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        int name = 0;
        if (strncmp(line, "VmFlags: ", 9) == 0 && m.name) {
            size_t length = 0;
            for (const char *flag = line + 9; flag[0] && flag[1] && length + 4 < sizeof m.flags; flag += 3)
                if (strncmp(flag, "sd", 2)) length += (size_t)snprintf(m.flags + length, 4, "%.2s ", flag);
            good = take_mapping(p, to, m, why);
            m.name = NULL;
        } else if (sscanf(line, "%lx-%lx %4s %n", &next.start, &next.end, next.rights, &name) == 3 && name) {
            m = next;
            /* what is left: "OFFSET DEVICE INODE   NAME"; of no file at all: "00000000 00:00 0" */
            m.name = line + name;
            if (strncmp(m.name, "00000000 00:00 0", 16) == 0) m.name += 16 + strspn(m.name + 16, " ");
            m.flags[0] = 0;
        }
    }
    free(all.data);
    return good && (to->count || fail(why, "the mappings of process %d are not understood", p->pid));
}

static bool find_own(int pagemap, struct mapping *m) {
    size_t pages = (m->end - m->start) / PAGE;
    uint64_t entries[512];
    for (size_t at = 0; at < pages; at += 512) {
        size_t some = pages - at < 512 ? pages - at : 512;
        if (pread(pagemap, entries, some * 8, (off_t)((m->start / PAGE + at) * 8)) != (ssize_t)(some * 8)) return false;
        for (size_t i = 0; i < some; i++) {
            if (!OWN_PAGE(entries[i]) && !(m->writable && m->of_a_file)) continue;
            if (m->owns % 64 == 0) {
                uint64_t *grown = realloc(m->own, (m->owns + 64) * sizeof *m->own);
                if (!grown) return false;
                m->own = grown;
            }
            m->own[m->owns++] = m->start + (at + i) * PAGE;
        }
    }
    return true;
}

/* Reads pages of one mapping, each run of neighbours at once. */
static bool read_own(struct process *p, struct mapping *m) {
    m->data = m->owns ? malloc(m->owns * PAGE) : NULL;
    if (m->owns && !m->data) return false;
    for (size_t first = 0, next; first < m->owns; first = next) {
        for (next = first + 1; next < m->owns && m->own[next] == m->own[next - 1] + PAGE; next++) continue;
        ssize_t length = (ssize_t)((next - first) * PAGE);
        if (pread(p->memory, m->data + first * PAGE, (size_t)length, (off_t)m->own[first]) != length) return false;
    }
    return true;
}

static bool read_memory(struct process *p, struct layout *layout, struct reason *why) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/pagemap", p->pid);
    int pagemap = open(path, O_RDONLY | O_CLOEXEC);
    bool good = pagemap >= 0, fits = true;
    size_t total = 0;
    for (size_t i = 0; good && fits && i < layout->count; i++) {
        good = find_own(pagemap, &layout->mappings[i]);
        total += layout->mappings[i].owns * PAGE;
        fits = total <= MOST_MEMORY;
        good = good && (!fits || read_own(p, &layout->mappings[i]));
    }
    if (pagemap >= 0) close(pagemap);
    if (!fits) return fail(why, "process %d has more than %d MiB of memory", p->pid, MOST_MEMORY >> 20);
    return good || fail(why, "the memory of process %d cannot be read", p->pid);
}

static void free_layout(struct layout *layout) {
    for (size_t i = 0; i < layout->count; i++) {
        free(layout->mappings[i].data);
        free(layout->mappings[i].own);
    }
    free(layout->mappings);
    free(layout->fixed.data);
    memset(layout, 0, sizeof *layout);
}

/* -- noting and returning -- */

static bool heap_end(struct process *p, const struct user_regs_struct *at, uint64_t *end) {
    long result;
    if (!call(p, at, SYS_brk, 0, 0, 0, 0, &result)) return false;
    *end = (uint64_t)result;
    return true;
}

static bool note_process(struct process *p, struct reason *why) {
    if (!get_registers(p, &p->registers) || !waits(p, &p->registers)) return fail(why, "process %d does not wait", p->pid);
    struct iovec part = {p->xstate, sizeof p->xstate};
    if (ptrace(PTRACE_GETREGSET, p->pid, NT_X86_XSTATE, &part) || ptrace(PTRACE_GETSIGMASK, p->pid, 8, &p->blocked))
        return fail(why, "the registers of process %d: %s", p->pid, strerror(errno));
    p->xstate_length = part.iov_len;
    bool good = (add_facts(&p->facts, p, &p->registers) && heap_end(p, &p->registers, &p->was.heap_end)) ||
                fail(why, "process %d cannot be looked at", p->pid);
    good = good && read_layout(p, &p->was, why) && read_memory(p, &p->was, why);
    return set_registers(p, &p->registers) && good;
}

/* Tells the first line in which two texts differ, if they do. */
static bool same_text(struct reason *why, int pid, const struct text *was, const struct text *is) {
    if (was->length == is->length && (!was->length || memcmp(was->data, is->data, is->length) == 0)) return true;
    size_t at = 0, line = 0;
    while (at < was->length && at < is->length && was->data[at] == is->data[at])
        if (was->data[at++] == '\n') line = at;
    return fail(why, "process %d was '%.80s' and is '%.80s'", pid, was->data + line, is->data + line);
}

static bool same_own_pages(struct process *p, const struct mapping *was, const struct mapping *is, struct reason *why) {
    size_t known = 0;
    for (size_t i = 0; i < is->owns; i++) {
        while (known < was->owns && was->own[known] < is->own[i]) known++;
        if (known == was->owns || was->own[known] != is->own[i] || memcmp(was->data + known * PAGE, is->data + i * PAGE, PAGE))
            return fail(why, "process %d has written at %lx, which is read-only", p->pid, (unsigned long)is->own[i]);
    }
    return true;
}

static bool write_page(struct process *p, uint64_t address, const char *data) {
    return pwrite(p->memory, data, PAGE, (off_t)address) == PAGE;
}

/* Writes what has changed: pages that are its own now and were not were empty, and those that are so no more are written. */
static bool write_back(struct process *p, const struct mapping *was, const struct mapping *is) {
    static const char empty[PAGE];
    for (size_t old = 0, new = 0; old < was->owns || new < is->owns;) {
        uint64_t before = old < was->owns ? was->own[old] : UINT64_MAX, after = new < is->owns ? is->own[new] : UINT64_MAX;
        const char *wanted = before <= after ? was->data + old * PAGE : empty;
        const char *there = after <= before ? is->data + new * PAGE : empty;
        if (memcmp(wanted, there, PAGE) && !write_page(p, before < after ? before : after, wanted)) return false;
        old += before <= after;
        new += after <= before;
    }
    return true;
}

static bool set_heap_end(struct process *p, const struct user_regs_struct *at, struct reason *why) {
    long result;
    return (call(p, at, SYS_brk, (long)p->was.heap_end, 0, 0, 0, &result) && (uint64_t)result == p->was.heap_end) ||
           fail(why, "the heap of process %d does not become what it was", p->pid);
}

/* The next mapping that is, or is not, a plain one. */
static const struct mapping *next_of(const struct layout *layout, size_t *at, bool plain) {
    while (*at < layout->count && layout->mappings[*at].plain != plain) ++*at;
    return *at < layout->count ? &layout->mappings[(*at)++] : NULL;
}

/* Compares what cannot be set: mappings but plain ones, and what a process has written where it may only read. */
static bool same_fixed(struct process *p, const struct layout *is, struct reason *why) {
    if (!same_text(why, p->pid, &p->was.fixed, &is->fixed)) return false;
    size_t old = 0, new = 0;
    const struct mapping *before, *after;
    do {
        before = next_of(&p->was, &old, false);
        after = next_of(is, &new, false);
        if (!before != !after || (before && (before->start != after->start || before->end != after->end)))
            return fail(why, "process %d has other mappings", p->pid);
        if (before && !before->writable && !same_own_pages(p, before, after, why)) return false;
    } while (before);
    return true;
}

static bool same_layout(const struct layout *was, const struct layout *is) {
    bool same = was->count == is->count;
    for (size_t i = 0; same && i < was->count; i++)
        same = was->mappings[i].start == is->mappings[i].start && was->mappings[i].end == is->mappings[i].end;
    return same;
}

/* Compares what can only be compared, and has the heap end no earlier than it did. */
static bool compare_process(struct process *p, struct layout *is, struct reason *why) {
    struct user_regs_struct at;
    struct text facts = {0};
    uint64_t end = 0;
    bool good = (get_registers(p, &at) && waits(p, &at)) || fail(why, "process %d does not wait", p->pid);
    good = good && ((add_facts(&facts, p, &at) && heap_end(p, &at, &end)) || fail(why, "process %d cannot be looked at", p->pid));
    good = good && same_text(why, p->pid, &p->facts, &facts);
    if (good && end < p->was.heap_end) good = set_heap_end(p, &at, why); /* what is above it is of no use to anybody */
    *is = (struct layout){.heap_end = p->was.heap_end, .stack_start = p->was.stack_start};
    good = good && read_layout(p, is, why) && read_memory(p, is, why) && same_fixed(p, is, why);
    free(facts.data);
    return set_registers(p, &at) && good;
}

/* Calls for each run of plain memory that is in one layout and not in another. */
static bool change_memory(struct process *p, const struct user_regs_struct *at, const struct layout *of, const struct layout *without,
                          bool map) {
    size_t one = 0, other = 0;
    const struct mapping *hole = next_of(without, &other, true);
    for (const struct mapping *m; (m = next_of(of, &one, true));) {
        for (uint64_t from = m->start; from < m->end;) {
            while (hole && hole->end <= from) hole = next_of(without, &other, true);
            bool inside = hole && hole->start <= from;
            uint64_t to = inside ? hole->end : hole && hole->start < m->end ? hole->start : m->end;
            if (to > m->end) to = m->end;
            long result = 0, length = (long)(to - from), fixed = 0x32; /* private, of no file, just there */
            if (!inside && (map ? !call(p, at, SYS_mmap, (long)from, length, 3, fixed, &result) || result != (long)from
                                : !call(p, at, SYS_munmap, (long)from, length, 0, 0, &result) || result))
                return false;
            from = to;
        }
    }
    return true;
}

/* Has plain memory and the stack lie where they lay. */
static bool set_layout(struct process *p, const struct user_regs_struct *at, struct layout *is, struct reason *why) {
    if (same_layout(&p->was, is)) return true;
    bool good = change_memory(p, at, is, &p->was, false) && change_memory(p, at, &p->was, is, true);
    free_layout(is);
    *is = (struct layout){.heap_end = p->was.heap_end, .stack_start = p->was.stack_start};
    good = good && read_layout(p, is, why) && same_layout(&p->was, is) && read_memory(p, is, why) && same_fixed(p, is, why);
    return good || fail(why, "the memory of process %d does not lie where it lay", p->pid);
}

static bool set_process(struct process *p, struct layout *is, struct reason *why) {
    struct user_regs_struct at;
    if (!get_registers(p, &at) || !set_heap_end(p, &at, why) || !set_layout(p, &at, is, why)) return false;
    for (size_t i = 0; i < p->was.count; i++)
        if (p->was.mappings[i].writable && !write_back(p, &p->was.mappings[i], &is->mappings[i]))
            return fail(why, "the memory of process %d cannot be written", p->pid);
    struct iovec part = {p->xstate, p->xstate_length};
    if (!set_registers(p, &p->registers) || ptrace(PTRACE_SETREGSET, p->pid, NT_X86_XSTATE, &part) ||
        ptrace(PTRACE_SETSIGMASK, p->pid, 8, &p->blocked))
        return fail(why, "the registers of process %d cannot be set", p->pid);
    return true;
}

void rewind_free(struct note *note) {
    for (int i = 0; note && i < note->count; i++) {
        free(note->processes[i].facts.data);
        free_layout(&note->processes[i].was);
    }
    free(note);
}

/* Our pauses are as short as they say. */
static void sleep_exactly(void) { prctl(PR_SET_TIMERSLACK, 1L); }

/* Takes down what processes are. Returns a note, to be freed; NULL, and why, if that cannot be had. */
struct note *rewind_note(const int *pids, int count, char *text, size_t room) {
    struct reason why = {text, room};
    struct note *note = count <= MOST_PROCESSES ? calloc(1, sizeof *note) : NULL;
    if (!note) return NULL;
    bool good = true;
    sleep_exactly();
    for (int i = 0; i < count; i++) note->processes[i] = (struct process){.pid = pids[i], .memory = -1};
    for (; good && note->count < count; note->count++) good = stop(&note->processes[note->count], &why);
    for (int i = 0; good && i < count; i++) good = note_process(&note->processes[i], &why);
    if (let_go(note, note->count) && good) return note;
    rewind_free(note);
    return NULL;
}

/* Makes processes what they were; 0 if they are that now. 1: they are others, and go on as they are; why is told. -1: they
 * could not be made so, and must not go on. */
int rewind_to(struct note *note, char *text, size_t room) {
    struct reason why = {text, room};
    struct layout now[MOST_PROCESSES] = {0};
    int stopped = 0, count = note->count, result = 1;
    bool good = true;
    sleep_exactly();
    for (; good && stopped < count; stopped++) good = stop(&note->processes[stopped], &why);
    for (int i = 0; good && i < count; i++) good = compare_process(&note->processes[i], &now[i], &why);
    if (good) result = 0;
    for (int i = 0; good && i < count; i++) good = set_process(&note->processes[i], &now[i], &why);
    if (!good && result == 0) result = -1;
    if (!let_go(note, stopped)) result = -1;
    for (int i = 0; i < count; i++) free_layout(&now[i]);
    return result;
}

#else

struct note;
void rewind_free(struct note *note) { (void)note; }
struct note *rewind_note(const int *pids, int count, char *text, size_t room) {
    (void)pids, (void)count;
    snprintf(text, room, "processes of this machine's architecture cannot be looked at");
    return NULL;
}
int rewind_to(struct note *note, char *text, size_t room) {
    (void)note, (void)text, (void)room;
    return 1;
}

#endif
