#include "asked.h"

#include <linux/prctl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "kept.h"

/* Newer than the headers of some systems. */
enum {
    GET_TID_ADDRESS = 40,
    SYSCALL_USER_DISPATCH = 59,
    SCHED_CORE = 62,
    GET_MDWE = 66,
    GET_MEMORY_MERGE = 68,
    TIMER_RESTORE_IDS = 77,
    FUTEX_HASH = 78,
    GET_OF_THE_LAST_TWO = 2,
    GET_CPUID = 0x1011,
    GET_XCOMP_PERM = 0x1022,
    GET_XCOMP_GUEST_PERM = 0x1024,
    SHSTK_STATUS = 0x5005,
    MEMBARRIER_GET_REGISTRATIONS = 512,
};

enum { OUT = -1 }; /* stands for an argument: a buffer for the call's output */
enum { LAST = -1 };
enum { KERNEL_SIGACTION = 32, SIGNALS = 64, MOST_QUESTIONS = 112, MOST_SAID = 2 * PAGE };

struct question {
    long call, arguments[5];
    size_t says; /* bytes that it writes to OUT */
};

/* In the format that the program below reads. */
struct order {
    long call, arguments[6], result;
};

/* All questions except those for the end of the heap and for signal handlers, which come first. If the kernel does
 * not know one, or refuses it, the error is the answer. The last one switches off syscall user dispatch (kept.c):
 * before Linux 6.4, nothing shows whether it is on. */
static const struct question QUESTIONS[] = {
    {SYS_sigaltstack, {0, OUT}, sizeof(stack_t)},
    {SYS_getitimer, {ITIMER_REAL, OUT}, sizeof(struct itimerval)},
    {SYS_getitimer, {ITIMER_VIRTUAL, OUT}, sizeof(struct itimerval)},
    {SYS_getitimer, {ITIMER_PROF, OUT}, sizeof(struct itimerval)},
    {SYS_modify_ldt, {0, OUT, 8}, 8},
    {SYS_prctl, {PR_GET_PDEATHSIG, OUT}, sizeof(int)},
    {SYS_prctl, {PR_GET_TSC, OUT}, sizeof(int)},
    {SYS_prctl, {PR_GET_CHILD_SUBREAPER, OUT}, sizeof(int)},
    {SYS_prctl, {GET_TID_ADDRESS, OUT}, sizeof(long)},
    {SYS_prctl, {SCHED_CORE, 0, 0, 0, OUT}, sizeof(long)},
    {SYS_prctl, {PR_GET_DUMPABLE}, 0},
    {SYS_prctl, {PR_GET_KEEPCAPS}, 0},
    {SYS_prctl, {PR_GET_SECUREBITS}, 0},
    {SYS_prctl, {PR_GET_TIMERSLACK}, 0},
    {SYS_prctl, {PR_MCE_KILL_GET}, 0},
    {SYS_prctl, {PR_GET_THP_DISABLE}, 0},
    {SYS_prctl, {PR_GET_IO_FLUSHER}, 0},
    {SYS_prctl, {PR_GET_SPECULATION_CTRL, 0}, 0},
    {SYS_prctl, {PR_GET_SPECULATION_CTRL, 1}, 0},
    {SYS_prctl, {PR_GET_SPECULATION_CTRL, 2}, 0},
    {SYS_prctl, {GET_MDWE}, 0},
    {SYS_prctl, {GET_MEMORY_MERGE}, 0},
    {SYS_prctl, {TIMER_RESTORE_IDS, GET_OF_THE_LAST_TWO}, 0},
    {SYS_prctl, {FUTEX_HASH, GET_OF_THE_LAST_TWO}, 0},
    {SYS_arch_prctl, {GET_CPUID, 0}, 0},
    {SYS_arch_prctl, {GET_XCOMP_PERM, OUT}, sizeof(long)},
    {SYS_arch_prctl, {GET_XCOMP_GUEST_PERM, OUT}, sizeof(long)},
    {SYS_arch_prctl, {SHSTK_STATUS, OUT}, sizeof(long)},
    {SYS_membarrier, {MEMBARRIER_GET_REGISTRATIONS}, 0},
    {SYS_prctl, {SYSCALL_USER_DISPATCH, 0}, 0},
};

/* A program that a process executes for us: it makes the calls of a list of orders, at r12, and stops after the
 * last. */
extern const char tvsnap_asking[], tvsnap_asked[];
__asm__(".pushsection .rodata\n"
        "tvsnap_asking:\n"
        "1:  mov (%r12), %rax\n"
        "    cmp $-1, %rax\n"
        "    je 2f\n"
        "    mov 8(%r12), %rdi\n"
        "    mov 16(%r12), %rsi\n"
        "    mov 24(%r12), %rdx\n"
        "    mov 32(%r12), %r10\n"
        "    mov 40(%r12), %r8\n"
        "    mov 48(%r12), %r9\n"
        "    syscall\n"
        "    mov %rax, 56(%r12)\n"
        "    add $64, %r12\n"
        "    jmp 1b\n"
        "2:  int3\n"
        "tvsnap_asked:\n"
        ".popsection\n");

/* The contents of the memory that the process gets for this. */
struct sheet {
    char program[PAGE];
    struct order orders[MOST_QUESTIONS];
    char said[MOST_SAID];
};

static size_t room_taken(const struct sheet *sheet) { return (sizeof *sheet + PAGE - 1) / PAGE * PAGE; }

/* Writes questions, the first of them for the end of the heap, into a sheet at `place`; the last one is omitted if
 * `told`. Returns how many there are, and how many bytes the answers take. */
static size_t write_orders(struct sheet *sheet, unsigned long place, bool told, size_t *said) {
    size_t count = 0, questions = sizeof QUESTIONS / sizeof *QUESTIONS - told;
    unsigned long out = place + offsetof(struct sheet, said);
    *said = 0;
    memcpy(sheet->program, tvsnap_asking, (size_t)(tvsnap_asked - tvsnap_asking));
    sheet->orders[count++] = (struct order){SYS_brk, {0}, 0};
    for (int signal = 1; signal <= SIGNALS; signal++, *said += KERNEL_SIGACTION)
        sheet->orders[count++] = (struct order){SYS_rt_sigaction, {signal, 0, (long)(out + *said), 8}, 0};
    for (size_t i = 0; i < questions; i++, count++) {
        struct order *order = &sheet->orders[count];
        order->call = QUESTIONS[i].call;
        for (int a = 0; a < 5; a++)
            order->arguments[a] = QUESTIONS[i].arguments[a] == OUT ? (long)(out + *said) : QUESTIONS[i].arguments[a];
        *said += QUESTIONS[i].says;
    }
    sheet->orders[count].call = LAST;
    return count;
}
_Static_assert(1 + SIGNALS + sizeof QUESTIONS / sizeof *QUESTIONS < MOST_QUESTIONS, "each question has a place");

/* Lines of /proc/PID/status on permissions and signal handling. */
static const char *const STATUS[] = {
    "Umask", "Tgid", "NStgid", "Uid", "Gid", "Groups", "NSpid", "NSpgid", "NSsid", "VmLck", "VmPin",
    "Threads", "SigPnd", "ShdPnd", "SigIgn", "SigCgt", "Cap", "NoNewPrivs", "Seccomp", "Speculation",
    "Cpus_allowed:", "Mems_allowed:", "THP_enabled", "untag_mask", "x86_Thread", "CoreDumping", "FDSize",
};

/* Adds the status. As the process has just got more memory, how much is locked shows whether all future memory is to be
 * locked (mlockall). */
static bool add_status(struct text *to, const struct process *p) {
    struct text all = {0};
    bool good = add_file(&all, p->directory, "status") && all.data;
    for (char *line = all.data, *end; good && line && *line; line = end) {
        end = line + strcspn(line, "\n");
        end += *end == '\n';
        bool wanted = false;
        for (size_t i = 0; !wanted && i < sizeof STATUS / sizeof *STATUS; i++)
            wanted = *line == *STATUS[i] && strncmp(line, STATUS[i], strlen(STATUS[i])) == 0;
        good = !wanted || add(to, line, (size_t)(end - line));
    }
    free(all.data);
    return good;
}

/* Whether it neither blocks nor ignores SIGTRAP: the kernel would reset that to the default when we make it stop. */
static bool may_be_stepped(const struct process *p) { return !((p->blocks | p->ignores) >> (SIGTRAP - 1) & 1); }

static bool run_program(struct process *p, const struct user_regs_struct *at, unsigned long place) {
    struct user_regs_struct registers = *at;
    registers.orig_rax = (unsigned long)-1;
    registers.rip = place;
    registers.r12 = place + offsetof(struct sheet, orders);
    if (!set_registers(p, &registers) || ptrace(PTRACE_CONT, p->pid, 0, 0)) return false;
    int status = await_stop(p->pid);
    keep_signal(p, status);
    p->broken |= status == NONE;
    return status != NONE && WSTOPSIG(status) == SIGTRAP && get_registers(p, &registers) &&
           registers.rip == place + (unsigned long)(tvsnap_asked - tvsnap_asking);
}

static bool ask(struct text *to, struct process *p, const struct user_regs_struct *at, unsigned long place, struct sheet *sheet,
                uint64_t *heap_end) {
    size_t said, count = write_orders(sheet, place, tells_of_dispatch(p), &said), asked = offsetof(struct sheet, orders[count + 1]);
    if (said > sizeof sheet->said || pwrite(p->memory, sheet, asked, (off_t)place) != (ssize_t)asked) return false;
    size_t answered = offsetof(struct sheet, said) + said;
    if (!run_program(p, at, place) || pread(p->memory, sheet, answered, (off_t)place) != (ssize_t)answered) return false;
    *heap_end = (uint64_t)sheet->orders[0].result;
    bool good = true;
    for (size_t i = 1; good && i < count; i++) {
        if (i <= SIGNALS) good = sheet->orders[i].result == 0;
        else good = add_line(to, "answer %zu: %ld\n", i - SIGNALS - 1, sheet->orders[i].result);
    }
    return good && add(to, sheet->said, said);
}

bool add_answers(struct text *to, struct process *p, const struct user_regs_struct *at, uint64_t *heap_end) {
    struct sheet *sheet = calloc(1, sizeof *sheet);
    long place = -1, result = -1, length = sheet ? (long)room_taken(sheet) : 0;
    bool good = sheet && may_be_stepped(p) &&
                call(p, at, SYS_mmap, 0, length, 7, 0x22, &place) && place >= 0; /* private, anonymous */
    if (good) {
        good = add_status(to, p) && ask(to, p, at, (unsigned long)place, sheet, heap_end);
        good = call(p, at, SYS_munmap, place, length, 0, 0, &result) && result == 0 && good;
    }
    free(sheet);
    return good;
}
