/* What a sandbox may ask of the kernel: capabilities and a filter of system calls. */
#include "guest.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#define X32_CALLS 0x40000000
#elif defined __aarch64__
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "the system call filter does not know this machine"
#endif

/* What a container's root keeps: at most the default set of Docker, without devices. The rest is gone for good. */
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
    for (int i = 0; i < 2; i++) {
        data[i].permitted &= (uint32_t)(mask >> 32 * i);
        data[i].effective = data[i].permitted;
        data[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &head, data)) die("capset");
}

/* What no command of a sandbox needs, and where kernels break: user namespaces of its own (which could not be
 * checkpointed either), keyrings, BPF, and the like. clone3 hides its flags behind a pointer: programs fall back. */
void filter_system_calls(void) {
    static const int denied[] = {
        SYS_keyctl, SYS_add_key, SYS_request_key, SYS_bpf, SYS_userfaultfd, SYS_perf_event_open, SYS_open_by_handle_at,
        SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_io_uring_setup,
        SYS_io_uring_enter, SYS_io_uring_register, SYS_setns, SYS_fsopen, SYS_open_tree, SYS_move_mount,
    };
    enum { DENIED = sizeof denied / sizeof *denied };
    struct sock_filter code[16 + 2 * DENIED];
    unsigned short n = 0;
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
    code[n++] = (struct sock_filter)LOAD(arch);
    code[n++] = (struct sock_filter)EQUAL(NATIVE_ARCH, 1, 0);
    code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | ENOSYS); /* no 32-bit calls */
    code[n++] = (struct sock_filter)LOAD(nr);
#if defined __x86_64__
    /* x32 has other numbers for the same calls, and the same architecture: none of them passes. */
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_CALLS, 0, 1);
    code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | ENOSYS);
#endif
    code[n++] = (struct sock_filter)EQUAL(SYS_clone3, 0, 1);
    code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | ENOSYS);
    for (int i = 0; i < DENIED; i++) {
        code[n++] = (struct sock_filter)EQUAL((unsigned)denied[i], 0, 1);
        code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | EPERM);
    }
    code[n++] = (struct sock_filter)EQUAL(SYS_clone, 1, 0);
    code[n++] = (struct sock_filter)EQUAL(SYS_unshare, 0, 3);
    code[n++] = (struct sock_filter)LOAD(args[0]);
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1);
    code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | EPERM);
    code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = n, .filter = code};
    /* Without CAP_SYS_ADMIN it may not be set, and need not be: a container engine confined us before it started us. */
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) && errno != EACCES) die("seccomp");
}
