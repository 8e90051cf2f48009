#include "confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allowed.h"
#include "resource_limits.h"

#define LAST_PID "/proc/sys/kernel/ns_last_pid"

#if defined __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "the system call filter does not know this machine"
#endif

/* Sets our capabilities, which no process that we start inherits: of `permitted` (in one word), `effective` are
 * active. */
static void set_capabilities(uint64_t permitted, uint64_t effective) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    for (int i = 0; i < 2; i++) {
        data[i].permitted = (uint32_t)(permitted >> 32 * i);
        data[i].effective = (uint32_t)(effective >> 32 * i);
        data[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &head, data)) die("capset");
}

/* Sets the limits; those of this process that are lower and may not be raised stay. */
void set_resource_limits(void) {
    for (int i = 0; i < RESOURCE_LIMIT_COUNT; i++) {
        struct rlimit own, wanted = RESOURCE_LIMITS[i].limit;
        if (setrlimit(RESOURCE_LIMITS[i].resource, &wanted) == 0) continue;
        if (getrlimit(RESOURCE_LIMITS[i].resource, &own)) die("resource limits");
        if (wanted.rlim_max > own.rlim_max) wanted.rlim_max = own.rlim_max; /* RLIM_INFINITY is the highest */
        if (wanted.rlim_cur > wanted.rlim_max) wanted.rlim_cur = wanted.rlim_max;
        if (setrlimit(RESOURCE_LIMITS[i].resource, &wanted)) die("resource limits");
    }
}

static uint64_t ordinary;  /* capabilities that we always have */
static uint64_t numbering; /* the capability for setting process ids, if we have it */

/* Keeps the capabilities of a container's root: at most Docker's default set, without devices. The rest is dropped
 * for good, except that PID 1 may set process ids: this is in no bounding set, so that no program gets it, and
 * active for one write only. */
void drop_capabilities(void) {
    static const int keep[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE,     CAP_FOWNER,  CAP_FSETID,     CAP_KILL,
                               CAP_SETGID, CAP_SETUID,           CAP_SETPCAP, CAP_SYS_CHROOT, CAP_NET_RAW,
                               CAP_NET_BIND_SERVICE, CAP_AUDIT_WRITE, CAP_SETFCAP};
    uint64_t mask = 0;
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) mask |= 1ULL << keep[i];
    for (int c = 0; c <= CAP_LAST_CAP; c++)
        if (!(mask >> c & 1)) prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data)) die("capget");
    uint64_t permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
    ordinary = permitted & mask;
    numbering = permitted & 1ULL << CAP_CHECKPOINT_RESTORE;
    set_capabilities(ordinary | numbering, ordinary);
}

/* Gives the next process the id after `last`, or the next free one; returns false if the kernel does not allow it. */
bool number_processes(pid_t last) {
    int fd = open(LAST_PID, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    if (numbering) set_capabilities(ordinary | numbering, ordinary | numbering);
    bool done = dprintf(fd, "%d", last) > 0;
    if (numbering) set_capabilities(ordinary | numbering, ordinary);
    close(fd);
    return done;
}

/* Makes kernel settings read-only, and hides what container runtimes hide in /proc, and the list of locks, which has
 * those of open files in all sandboxes. Some settings belong to the sandbox's own namespaces; but no observation
 * would see them change, and no snapshot holds them all. */
void protect_proc(void) {
    static const char *const files[] = {"/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
                                        "/proc/locks",      "/proc/timer_list"};
    static const char *const directories[] = {"/proc/acpi", "/proc/asound", "/proc/scsi"};
    static const unsigned long read_only = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    int last = open(LAST_PID, O_PATH | O_CLOEXEC);
    if (mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL)) {
        if (last >= 0) close(last);
        if (errno == EPERM) return; /* a container engine has done all this before it started us */
        die("/proc/sys");
    }
    if (mount(NULL, "/proc/sys", NULL, read_only, NULL)) die("/proc/sys");
    if (last >= 0) { /* this file stays writable: the kernel requires a capability for it that only PID 1 has */
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", last);
        if (mount(path, LAST_PID, NULL, MS_BIND, NULL)) die(LAST_PID);
        close(last);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (mount("/dev/null", files[i], NULL, MS_BIND, NULL) && errno != ENOENT) die(files[i]);
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) /* /sys is empty */
        if (mount("/sys", directories[i], NULL, MS_BIND, NULL) && errno != ENOENT) die(directories[i]);
}

enum { MAX_CODE = 512 };

static struct {
    struct sock_filter code[MAX_CODE];
    unsigned short length;
} filter;

static void emit(struct sock_filter instruction) {
    if (filter.length == MAX_CODE) die("the system call filter is too long");
    filter.code[filter.length++] = instruction;
}

#define LOAD(field) emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field)))
#define JUMP(test, value, yes, no) emit((struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, value, yes, no))
#define ANSWER(value) emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value))
#define REFUSE(error) ANSWER(SECCOMP_RET_ERRNO | error)

/* If the rule does not match a call, the next one is tried. */
static void follow(const struct rule *rule) {
    unsigned char left = 1; /* instructions until the end of the rule */
    for (int i = 0; i < 2; i++) left = (unsigned char)(left + (rule->conditions[i].mask ? 3 : 0));
    LOAD(nr);
    JUMP(BPF_JEQ, (unsigned)rule->call, 0, left);
    for (int i = 0; i < 2 && rule->conditions[i].mask; i++) {
        left = (unsigned char)(left - 3);
        LOAD(args[rule->conditions[i].argument]);
        emit((struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, rule->conditions[i].mask));
        JUMP(BPF_JEQ, rule->conditions[i].value, 0, left);
    }
    ANSWER(rule->error ? SECCOMP_RET_ERRNO | (unsigned)rule->error : SECCOMP_RET_ALLOW);
}

/* The rest: calls listed in allowed.h pass, others are refused, and calls newer than the list do not exist. The
 * kernel caches the answer for each number, so that the order costs nothing. */
static void allow_listed(bool looks_itself) {
    bool allowed[NEWEST_CALL + 2] = {[SYS_pidfd_getfd] = looks_itself};
    LOAD(nr);
    for (size_t i = 0; i < sizeof allowed_calls / sizeof *allowed_calls; i++) allowed[allowed_calls[i]] = true;
    for (unsigned call = 1; call <= NEWEST_CALL + 1; call++) {
        if (allowed[call] == allowed[call - 1]) continue;
        JUMP(BPF_JGE, call, 1, 0);
        ANSWER(allowed[call] ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_ALLOW);
    }
    REFUSE(ENOSYS);
}

/* An allow list, equal in effect to the default profile of Moby, which is Docker Engine's (moby/profiles, seccomp
 * v0.2.3 of May 2026), for a container with the capabilities above, except:
 *   - No 32-bit and no x32 calls: they double the reachable part of the kernel, and CRIU restores no such programs.
 *   - unshare passes if it makes no namespace, which needs no privilege.
 *   - No F_NOTIFY, no memory protection keys (pkey_alloc), no sealed memory (mseal), and none of the settings by prctl
 *     and mlock that allowed.h lists: no checkpoint restores them.
 *   - No POSIX message queues: they belong to no process and no file, and checkpoints silently lose them.
 *   - No Landlock: CRIU would silently restore a process without the restrictions that it set itself.
 *   - Sockets of the families unix, inet, inet6 and netlink only (route, sock_diag): not packet, vsock, alg and others.
 *   - No flow labels of IPv6, which outlive the process that took them.
 *   - No TIOCSTI and TIOCLINUX, which type for other users of a terminal.
 *   - No FICLONE, FICLONERANGE, FIDEDUPERANGE and copy_file_range, by which files share disk blocks.
 * clone3 hides its flags behind a pointer: programs fall back to clone.
 *
 * `looks_itself`: pidfd_getfd passes, by which PID 1 inspects pipes and sockets of other processes (waiting.c,
 * holds.c) if the host cannot. Otherwise nobody inside may use it to change a sleeping process' sockets, which
 * nothing would show. */
void filter_system_calls(bool looks_itself) {
    LOAD(arch);
    JUMP(BPF_JEQ, NATIVE_ARCH, 1, 0);
    REFUSE(ENOSYS);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) follow(&rules[i]);
    allow_listed(looks_itself);
    struct sock_fprog program = {.len = filter.length, .filter = filter.code};
    /* Without CAP_SYS_ADMIN this fails, and is not needed: a container engine confined us before it started us. */
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) && errno != EACCES) die("seccomp");
}
