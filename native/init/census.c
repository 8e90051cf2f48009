/* Data on live processes for a backend that cannot read the sandbox's /proc from outside.
 *
 * One record for each process, `PID PARENT STATE START RAN RESIDENT HOLDS LOCKS\0COMMAND\0`: its start in clock ticks,
 * the nanoseconds of processor time that its tasks used, bytes, and what others can change of it while it sleeps
 * (holds.c). PID 1 and this process are left out, and so is what an engine started from outside (its parent's id is 0),
 * such as a bridge, since it is not part of the sandbox.
 *
 * For the shell there is another one, `shell PID START NICE PROCESSORS GONE HOLDS LOCKS\0FILES\0`: whether its working
 * directory was deleted, and a line `NUMBER POSITION FLAGS TARGET` for each open file, in whose target `\` and newline
 * are `\\` and `\n`. It is missing if this is unknown: only the shell's user, or root with CAP_SYS_PTRACE, may read it.
 *
 * `tvsnap-init holds PID...` prints a line `PID HOLDS LOCKS` for each; `-PID`: as for a service's, `=PID`: as for the
 * shell.
 */
#include "census.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "buffers.h"
#include "holds.h"
#include "proc.h"

/* Finds the value of a name in /proc/PID/status; returns its length, or -1. */
static int find_status(const char *status, const char *name, const char **value) {
    const char *found = strstr(status, name);
    if (!found) return -1;
    found += strlen(name);
    *value = found + strspn(found, " \t");
    return (int)strcspn(*value, "\n");
}

/* Inside, root can inspect a user's processes only as that user, since it has no CAP_SYS_PTRACE. */
static bool look_as(uid_t uid, gid_t gid) {
    setfsuid(geteuid()); /* restores the rights that leaving root's fsuid took away, which setresuid would not */
    if (setresgid(gid, (gid_t)-1, (gid_t)-1) || setresuid(uid, (uid_t)-1, (uid_t)-1)) return false;
    setfsgid(gid); /* the other calls change these as well */
    setfsuid(uid);
    return true;
}

static bool look_as_user_of(pid_t pid) {
    uid_t uid;
    gid_t gid;
    return read_owner(pid, &uid, &gid) && look_as(uid, gid);
}

static void look_as_root(void) {
    if (!look_as(geteuid(), getegid())) die("setresuid");
}

/* Prints what one process holds (holds.h), without a line's end. */
static void print_holds(pid_t pid, enum holder kind) {
    static struct holding *holding; /* its limits apply to all processes together */
    struct digest held, locked;
    if (!holding) holding = new_holding(INT64_MAX);
    if (!holding) die("memory");
    bool seen = find_holds(holding, pid, kind, &held, &locked);
    printf("%s %s", seen ? digest_text(&held) : "?", digest_text(&locked));
}

/* Only the user of a process can read some of its /proc files, but not its processor time. */
static void print_as_user(pid_t pid, enum holder kind) {
    if (!look_as_user_of(pid)) printf("? 0");
    else print_holds(pid, kind);
    look_as_root();
}

static unsigned long long time_run(pid_t pid) {
    char name[64], text[256];
    unsigned long long ran = 0;
    snprintf(name, sizeof name, "/proc/%d/task", pid);
    DIR *d = opendir(name);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        snprintf(name, sizeof name, "task/%.20s/schedstat", e->d_name);
        if (e->d_name[0] != '.' && read_proc(pid, name, text, sizeof text) > 0) ran += strtoull(text, NULL, 10);
    }
    if (d) closedir(d);
    return ran;
}

static void print_command(pid_t pid) {
    static char text[4096 + 1]; /* procfs.py reads as many bytes */
    ssize_t n = read_proc(pid, "cmdline", text, sizeof text);
    for (ssize_t i = 0; i < n; i++)
        if (!text[i]) text[i] = ' ';
    while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
    if (n > 0) {
        fwrite(text, 1, (size_t)n, stdout);
        return;
    }
    n = read_proc(pid, "comm", text, sizeof text);
    printf("[%.*s]", n > 0 ? (int)n - 1 : 0, text);
}

/* Whether a process is one of a service's root processes, or descends from one. */
static bool is_serving(pid_t pid, char **serving) {
    enum { MAX_GENERATIONS = 64 };
    struct life l;
    if (!*serving) return false;
    for (int i = 0; i < MAX_GENERATIONS && pid > 1 && read_life(pid, &l); i++, pid = l.parent)
        for (char **one = serving; *one; one++)
            if (atoi(*one) == pid) return true;
    return false;
}

static void print_process(pid_t pid, pid_t shell, char **serving) {
    struct life l;
    char text[256];
    long pages = 0;
    if (pid == 1 || pid == getpid() || !read_life(pid, &l) || !l.parent) return;
    if (read_proc(pid, "statm", text, sizeof text) > 0) sscanf(text, "%*d %ld", &pages);
    printf("%d %d %c %llu %llu %lld ", pid, l.parent, l.state, l.start, time_run(pid),
           (long long)pages * sysconf(_SC_PAGESIZE));
    if (pid == shell) printf("0 0"); /* it runs with every call, and has a separate record */
    else print_as_user(pid, is_serving(pid, serving) ? SERVING : OTHER);
    putchar(0);
    print_command(pid);
    putchar(0);
}

static void add_file(struct buffer *files, pid_t shell, const char *number) {
    char name[64], target[PATH_MAX], info[1024], line[128], flags[32] = "";
    unsigned long long position = 0;
    snprintf(name, sizeof name, "/proc/%d/fd/%.20s", shell, number);
    ssize_t n = readlink(name, target, sizeof target);
    snprintf(name, sizeof name, "fdinfo/%.20s", number);
    if (n < 0 || read_proc(shell, name, info, sizeof info) <= 0) return; /* closed meanwhile */
    sscanf(info, "pos: %llu flags: %31s", &position, flags);
    append(files, line, (size_t)snprintf(line, sizeof line, "%.20s %llu %s ", number, position, flags));
    for (ssize_t i = 0; i < n; i++) {
        if (target[i] == '\\' || target[i] == '\n') append(files, "\\", 1);
        append(files, target[i] == '\n' ? "n" : target + i, 1);
    }
    append(files, "\n", 1);
}

static void print_shell(pid_t shell) {
    struct life l;
    struct buffer files = {0};
    char name[64], cwd[PATH_MAX], status[4096];
    const char *processors;
    static const char gone[] = " (deleted)";
    snprintf(name, sizeof name, "/proc/%d/cwd", shell);
    ssize_t n = readlink(name, cwd, sizeof cwd);
    snprintf(name, sizeof name, "/proc/%d/fd", shell);
    DIR *d = opendir(name);
    struct dirent *e;
    bool told = n >= 0 && d && read_life(shell, &l) && read_proc(shell, "status", status, sizeof status) > 0;
    int width = told ? find_status(status, "\nCpus_allowed:", &processors) : -1;
    while (width >= 0 && (e = readdir(d)))
        if (e->d_name[0] != '.') add_file(&files, shell, e->d_name);
    if (d) closedir(d);
    if (width < 0) return;
    size_t mark = sizeof gone - 1;
    bool deleted = (size_t)n >= mark && memcmp(cwd + n - mark, gone, mark) == 0;
    printf("shell %d %llu %ld %.*s %d ", shell, l.start, l.nice, width, processors, deleted);
    print_holds(shell, SHELL);
    putchar(0);
    fwrite(files.data, 1, files.length, stdout);
    putchar(0);
}

int census(pid_t shell, char **serving) {
    pid_t *pids;
    size_t count = list_processes(&pids);
    for (size_t i = 0; i < count; i++)
        print_process(pids[i], shell, serving);
    if (look_as_user_of(shell)) print_shell(shell);
    look_as_root();
    return fflush(stdout) ? 1 : 0;
}

int holds_main(char **pids) {
    for (; *pids; pids++) {
        enum holder kind = **pids == '-' ? SERVING : **pids == '=' ? SHELL : OTHER;
        pid_t pid = (pid_t)atoi(*pids + (kind != OTHER));
        printf("%d ", pid);
        print_holds(pid, kind);
        putchar('\n');
    }
    return fflush(stdout) ? 1 : 0;
}
