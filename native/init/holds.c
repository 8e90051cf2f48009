#include "holds.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "attributes.h"
#include "expiry.h"
#include "hash.h"
#include "home.h"
#include "proc.h"
#include "terminal_state.h"

enum { PAGE = 4096, CHUNK = 1 << 18, MAX_FILES = 4096, MAX_LINES = 100000, LINES = 256 };
#define MAX_MEMORY (128LL << 20) /* bytes that are read, for all processes together: about 120 ms */
#define TASK_END ((1ULL << 47) - PAGE)

/* In linux/fs.h since 6.7. */
struct page_region {
    uint64_t start, end, categories;
};
struct pm_scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, category_mask,
        category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
enum { IS_FILE = 4, IS_PRESENT = 8, IS_SWAPPED = 16, IS_ZERO = 32 };

struct holding {
    long long memory_left;
    int lines_left; /* of the lists of mappings, watches and locks, for all processes together */
    int64_t end;    /* see new_holding */
    bool late;
    /* Of the current process: */
    struct hash sum, locks;
    bool doubt;
    /* Contents of memory, from any number of ranges, are collected here before they are hashed; `sum` already has
     * the places. */
    unsigned char ahead[CHUNK];
    size_t ahead_length;
    struct page_region found[1024];
    char room[65536];
};

/* Returns a new object for inspecting processes, one after the other, until this thread has used so much processor time
 * (INT64_MAX for no limit); NULL if there is no memory. To be freed. */
struct holding *new_holding(int64_t end) {
    struct holding *h = malloc(sizeof *h);
    if (!h) return NULL;
    h->memory_left = MAX_MEMORY;
    h->lines_left = MAX_LINES;
    h->end = end;
    h->late = false;
    h->ahead_length = 0;
    return h;
}

bool is_late(const struct holding *h) { return h->late; }

static void keep_time(struct holding *h) {
    struct timespec t;
    if (h->end == INT64_MAX) return;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    h->late = h->late || t.tv_sec * 1000000000LL + t.tv_nsec > h->end;
    h->doubt = h->doubt || h->late;
}

static void take(struct holding *h, const void *data, size_t length) { hash_piece(&h->sum, data, length); }

static void take_number(struct holding *h, uint64_t number) { hash_number(&h->sum, number); }

/* Descriptors. */

static bool starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* Hashes fdinfo: position, flags and locks; of a timer not how much time is left, but when it expires. */
static void take_info(struct holding *h, pid_t pid, const char *number) {
    char name[64], *line = NULL;
    size_t room = 0;
    snprintf(name, sizeof name, "/proc/%d/fdinfo/%.20s", pid, number);
    FILE *info = fopen(name, "re");
    h->doubt = h->doubt || !info;
    for (ssize_t n; !h->doubt && info && (n = getline(&line, &room, info)) > 0;) { /* a line for each watch and lock */
        if (h->lines_left-- <= 0) h->doubt = true;
        if (h->lines_left % LINES == 0) keep_time(h);
        size_t length = (size_t)n - (line[n - 1] == '\n');
        if (starts(line, "lock:")) {
            hash_piece(&h->locks, number, strlen(number));
            hash_piece(&h->locks, line, length);
        }
        if (starts(line, "it_value:")) {
            uint64_t expiry = 0;
            h->doubt = !find_expiry(pid, number, &expiry) || h->doubt;
            take_number(h, expiry);
        } else if (!starts(line, "ticks:")) {
            take(h, line, length);
        }
    }
    free(line);
    if (info) fclose(info);
}

/* Hashes which process is signalled when a file is ready, and by which signal. */
static void take_signalled(struct holding *h, int fd) {
    struct f_owner_ex owner = {0};
    fcntl(fd, F_GETOWN_EX, &owner);
    take(h, &owner, sizeof owner);
    take_number(h, (uint64_t)fcntl(fd, F_GETSIG));
}

/* `fd`: the open file, -1 if it is inaccessible; `name`: its link in /proc; `target`: the link's target, of `n`
 * bytes. */
static void take_kind(struct holding *h, int fd, const char *name, const char *target, size_t n, bool shell) {
    static const char gone[] = " (deleted)";
    struct stat st;
    if (starts(target, "socket:") || starts(target, "anon_inode:")) {
        h->doubt = h->doubt || shell; /* calls inherit it, and may set its options */
        return;
    }
    if (stat(name, &st)) {
        h->doubt = true;
        return;
    }
    size_t mark = sizeof gone - 1;
    if (S_ISREG(st.st_mode) && n >= mark && strcmp(target + n - mark, gone) == 0) {
        take(h, &st.st_ino, sizeof st.st_ino);
        take_number(h, (uint64_t)st.st_size);
        take(h, &st.st_mtim, sizeof st.st_mtim);
        take(h, &st.st_ctim, sizeof st.st_ctim);
        take_number(h, st.st_mode);
    }
    bool terminal = is_terminal(&st), in_memory = S_ISREG(st.st_mode) && starts(target, "/memfd:");
    if (!terminal && !in_memory && !S_ISFIFO(st.st_mode)) return;
    if (fd < 0) {
        h->doubt = true;
        return;
    }
    take_number(h, st.st_mode);
    take_number(h, st.st_uid);
    take_number(h, st.st_gid);
    if (in_memory) {
        take_number(h, (uint64_t)fcntl(fd, F_GET_SEALS));
    } else if (terminal) {
        int group = -1, unread = -1;
        ioctl(fd, TIOCGPGRP, &group);
        ioctl(fd, FIONREAD, &unread);
        take_terminal(&h->sum, fd);
        take_number(h, major(st.st_rdev) != 5 && is_stopped(fd)); /* 5: the master */
        take_number(h, (uint64_t)group);
        take_number(h, (uint64_t)unread);
        take_times_set(&h->sum, &st);
    } else {
        take_number(h, (uint64_t)fcntl(fd, F_GETPIPE_SZ));
    }
}

static void take_file(struct holding *h, pid_t pid, int process, const char *number, bool shell) {
    char name[64], target[PATH_MAX];
    snprintf(name, sizeof name, "/proc/%d/fd/%.20s", pid, number);
    ssize_t n = readlink(name, target, sizeof target - 1);
    if (n < 0) {
        h->doubt = h->doubt || errno != ENOENT;
        return;
    }
    target[n] = 0;
    if (starts(target, OUTPUT_PATH)) n = sizeof OUTPUT_PATH - 1; /* ours, and deleted when a later call needs another */
    target[n] = 0;
    /* A background job that is a copy of the shell has the file with its commands. */
    if (atoi(number) >= 10 && strcmp(target, "/memfd:command (deleted)") == 0) return;
    take(h, number, strlen(number));
    take(h, target, (size_t)n);
    take_info(h, pid, number);
    int fd = (int)syscall(SYS_pidfd_getfd, process, atoi(number), 0);
    if (fd >= 0) take_signalled(h, fd);
    take_kind(h, fd, name, target, (size_t)n, shell);
    if (fd >= 0) close(fd);
}

/* The shell's descriptors for its terminal, PID 1's pipes, and bash's own, some of them temporary: see rc. */
static bool is_own(int number) {
    static const int own[] = {0, 1, 2, 10, 11, 12, 27, 28, 29, 30, 255};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i] == number) return true;
    return false;
}

static void take_files(struct holding *h, pid_t pid, bool shell) {
    char name[64];
    int count = 0, process = open_process(pid);
    snprintf(name, sizeof name, "/proc/%d/fd", pid);
    DIR *d = opendir(name);
    struct dirent *e;
    if (!d || process < 0) h->doubt = true;
    while (d && !h->doubt && (e = readdir(d))) {
        if (e->d_name[0] == '.' || (shell && is_own(atoi(e->d_name)))) continue;
        keep_time(h);
        if (++count > MAX_FILES) h->doubt = true;
        else take_file(h, pid, process, e->d_name, shell);
    }
    if (d) closedir(d);
    if (process >= 0) close(process);
}

/* Memory. */

static void take_read_ahead(struct holding *h) {
    struct digest d = digest_of_many(h->ahead, h->ahead_length);
    hash_take(&h->sum, d.bytes, sizeof d.bytes);
    h->ahead_length = 0;
}

static void take_range(struct holding *h, int memory, uint64_t start, uint64_t end) {
    keep_time(h);
    h->memory_left -= (long long)(end - start);
    if (h->memory_left < 0) h->doubt = true;
    while (!h->doubt && start < end) {
        size_t room = CHUNK - h->ahead_length, wanted = end - start < room ? end - start : room;
        ssize_t n = pread(memory, h->ahead + h->ahead_length, wanted, (off_t)start);
        take_number(h, start);
        take_number(h, n > 0 ? (uint64_t)n : (uint64_t)-errno); /* fails for a guard page, or device memory */
        start += n > 0 ? (size_t)n : PAGE;
        h->ahead_length += n > 0 ? (size_t)n : 0;
        if (h->ahead_length == CHUNK) take_read_ahead(h);
    }
}

/* Hashes all anonymous pages, including those that a debugger has put in place of a program's own. Returns false if the
 * kernel cannot list them. */
static bool take_anonymous(struct holding *h, int memory, int pages) {
    struct pm_scan_arg scan = {
        .size = sizeof scan,
        .end = TASK_END,
        .vec = (uint64_t)(uintptr_t)h->found,
        .vec_len = sizeof h->found / sizeof *h->found,
        .category_inverted = IS_FILE | IS_ZERO,
        .category_mask = IS_FILE | IS_ZERO,
        .category_anyof_mask = IS_PRESENT | IS_SWAPPED,
        .return_mask = IS_PRESENT,
    };
    while (scan.start < TASK_END && !h->doubt) {
        long count = ioctl(pages, PAGEMAP_SCAN, &scan);
        if (count < 0) return false;
        for (long i = 0; i < count && !h->doubt; i++) take_range(h, memory, h->found[i].start, h->found[i].end);
        if (scan.walk_end <= scan.start) break;
        scan.start = scan.walk_end;
    }
    return true;
}

/* The same by the older file, with a word for each page. */
static void take_present(struct holding *h, int memory, int pages, uint64_t start, uint64_t end) {
    uint64_t words[512];
    while (start < end && !h->doubt) {
        size_t wanted = (end - start) / PAGE < 512 ? (end - start) / PAGE : 512;
        ssize_t n = pread(pages, words, wanted * sizeof *words, (off_t)(start / PAGE * sizeof *words));
        if (n <= 0 || (h->memory_left -= n) < 0) {
            h->doubt = true;
            return;
        }
        for (size_t i = 0; i < (size_t)n / sizeof *words; i++, start += PAGE)
            if (words[i] >> 62 && !(words[i] >> 61 & 1)) take_range(h, memory, start, start + PAGE);
    }
}

static bool is_shared_memory(const char *name) {
    return starts(name, "/memfd:") || starts(name, "/SYSV") || starts(name, "/dev/zero") || starts(name, "/dev/shm/") ||
           strstr(name, " (deleted)");
}

/* Whether only a process' ancestors may read or change its memory. */
static bool yama_forbids(void) {
    char scope[16] = {0};
    int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool forbids = read(fd, scope, sizeof scope - 1) > 0 && scope[0] != '0';
    close(fd);
    return forbids;
}

static void take_memory(struct holding *h, pid_t pid) {
    char name[64], line[PATH_MAX + 128];
    snprintf(name, sizeof name, "/proc/%d/mem", pid);
    int memory = open(name, O_RDONLY | O_CLOEXEC);
    bool forbidden = memory < 0 && errno == EACCES && yama_forbids(); /* then nobody else can change it */
    snprintf(name, sizeof name, "/proc/%d/pagemap", pid);
    int pages = open(name, O_RDONLY | O_CLOEXEC);
    snprintf(name, sizeof name, "/proc/%d/maps", pid);
    FILE *maps = fopen(name, "re");
    if (maps) setvbuf(maps, h->room, _IOFBF, sizeof h->room); /* a list read in parts may change in between */
    if (!maps || ((memory < 0 || pages < 0) && !forbidden)) h->doubt = true;
    bool anonymous = !h->doubt && memory >= 0 && take_anonymous(h, memory, pages);
    while (!h->doubt && maps && fgets(line, sizeof line, maps)) {
        unsigned long long start, end;
        char modes[8];
        int path = 0;
        if (sscanf(line, "%llx-%llx %7s %*s %*s %*s %n", &start, &end, modes, &path) != 3) continue;
        if (h->lines_left-- <= 0) h->doubt = true;
        take(h, line, strlen(line)); /* the address range, permissions and file */
        bool shared = modes[3] == 's';
        if (modes[0] != 'r' || memory < 0) continue;
        if (shared ? path && is_shared_memory(line + path) : !anonymous && modes[1] == 'w')
            shared ? take_range(h, memory, start, end) : take_present(h, memory, pages, start, end);
    }
    take_read_ahead(h);
    if (memory >= 0) close(memory);
    if (pages >= 0) close(pages);
    if (maps) fclose(maps);
}

/* Whether a process has other threads than its main thread, which may end before them. */
static bool has_other_threads(pid_t pid) {
    char name[64];
    int count = 0;
    snprintf(name, sizeof name, "/proc/%d/task", pid);
    DIR *d = opendir(name);
    for (struct dirent *e; d && (e = readdir(d));) count += e->d_name[0] != '.';
    if (d) closedir(d);
    return count > 1;
}

/* Finds what one process holds (see holds.h), and its locks. Returns false if part of that cannot be seen. */
bool find_holds(struct holding *h, pid_t pid, enum holder kind, struct digest *held, struct digest *locked) {
    struct life l;
    h->sum = h->locks = hash_begun();
    h->doubt = false;
    keep_time(h);
    bool ended = !read_life(pid, &l) || l.state == 'Z';
    if (ended && has_other_threads(pid)) h->doubt = true; /* their memory and files are inaccessible by its id */
    if (!ended) take_files(h, pid, kind == SHELL);
    if (!ended && !h->doubt && kind == OTHER) take_memory(h, pid);
    if (kind == OTHER && !h->late) {
        struct digest kept;
        h->doubt = !kernel_attributes(pid, &kept) || h->doubt;
        hash_take(&h->sum, kept.bytes, sizeof kept.bytes);
    }
    *held = hash_end(kind == SERVING ? &h->locks : &h->sum);
    *locked = hash_end(&h->locks);
    return !h->doubt;
}
