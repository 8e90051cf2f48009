/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A plugin of CRIU: system calls that a dump interrupts go on waiting, as if nothing had been.
 *
 * CRIU stops all threads before it looks into them, and a call that waits then returns from the kernel. Most are begun
 * again: the kernel's own codes for that CRIU knows. But some calls return EINTR at once (signal(7) lists them), and
 * those with a relative timeout return a code that only the kernel can follow, and no longer once CRIU's code has run in
 * the thread: CRIU turns it into EINTR. The program would see that, in the sandbox that goes on and in each fork.
 *
 * So while all stand still and nothing of CRIU's is in them yet, each such call is made to begin again, with what is left
 * of its timeout. How long it has lasted tells the scheduler: when the thread last ran, by the clock of its processor.
 * Where that is not told (no CONFIG_SCHED_DEBUG), the whole timeout begins anew.
 *
 * CRIU loads it, be CRIU static or not, so it stands on no C library. x86-64 only: elsewhere it does nothing. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PAUSE_DEVICES = 10, CHECKPOINT_DEVICES = 11, HOOKS };

/* What CRIU looks for, see criu-plugin.h. It takes plugins with fewer hooks than it has itself, and with an older version. */
struct plugin {
    const char *name;
    int (*init)(int stage);
    void (*end)(int stage, int result);
    unsigned version, hook_count;
    int (*hooks[HOOKS])(int pid);
};

#ifdef __x86_64__

enum {
    READ = 0, WRITE = 1, CLOSE = 3, POLL = 7, READV = 19, WRITEV = 20, SELECT = 23, NANOSLEEP = 35, ACCEPT = 43,
    SENDTO = 44, RECVFROM = 45, SENDMSG = 46, RECVMSG = 47, SEMOP = 65, PTRACE = 101, RT_SIGTIMEDWAIT = 128, FUTEX = 202,
    SET_AFFINITY = 203, GET_AFFINITY = 204, GETDENTS = 217, SEMTIMEDOP = 220, CLOCK_GETTIME = 228, CLOCK_NANOSLEEP = 230,
    EPOLL_WAIT = 232, OPENAT = 257, PSELECT6 = 270, PPOLL = 271, EPOLL_PWAIT = 281, ACCEPT4 = 288, EPOLL_PWAIT2 = 441,
};
enum { PEEK = 1, POKE = 4, GET_REGISTERS = 12, SET_REGISTERS = 13, GET_SIGNAL = 0x4202 };
enum { EINTR_CODE = -4, RESTART_NO_HANDLER = -514, RESTART_BLOCK = -516, SIGTRAP_NUMBER = 5, AT_FDCWD = -100, DIRECTORY = 0x90000 };
enum { TIMER_ABSTIME = 1, FUTEX_COMMAND = 127, FUTEX_WAIT = 0, MONOTONIC = 1, BOOT_TIME = 7 };
enum { START_FIELD = 22, PROCESSOR_FIELD = 39 };
enum { MOST_THREADS = 2048, MOST_PROCESSORS = 1024 };

#define SYSCALL_INSTRUCTION 0x050f
#define SECOND 1000000000L
#define TICK (SECOND / 100) /* of times in /proc/PID/stat, ns */
#define UNKNOWN INT64_MIN
#define LONGEST (INT64_MAX / SECOND / 2) /* seconds that can be counted in nanoseconds */
#define BELOW_THE_STACK 256 /* bytes: the ABI gives a function 128 below its stack pointer */

struct registers {
    uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, call, rip, cs, flags, rsp, ss;
    uint64_t fs_base, gs_base, ds, es, fs, gs;
};

/* A wait with a timeout: when it began, and, once it was made to begin again, where what is left of it stands. */
static struct wait {
    int thread;
    long call;
    int64_t began; /* by the monotonic clock, ns; UNKNOWN if that is not told */
    enum { NOWHERE, IN_RDX, IN_R10, IN_MEMORY, IN_ITS_OWN } place;
    uint64_t address;
    int64_t unit; /* of what stands behind the seconds in memory, ns */
    int64_t ends; /* by the monotonic clock, ns */
} waits[MOST_THREADS];
static int wait_count;
static int64_t behind[MOST_PROCESSORS]; /* of each processor's own clock, ns; UNKNOWN until it was asked */
static uint64_t processors[MOST_PROCESSORS / 64]; /* where this process may run */

static long call6(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#define call(number, a, b, c, d) call6(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

static int64_t time_of(int clock) {
    int64_t time[2];
    call(CLOCK_GETTIME, clock, time, 0, 0);
    return time[0] * SECOND + time[1];
}

static int64_t now(void) { return time_of(MONOTONIC); }

/* -- /proc -- */

static char *put_number(char *to, long number) {
    char digits[24];
    int count = 0;
    do digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count) *to++ = digits[--count];
    return to;
}

static char *put(char *to, const char *text) {
    while (*text) *to++ = *text++;
    return to;
}

/* Opens /proc/PID/task/THREAD/NAME; without a thread and a name, the directory of its threads; 0 is this process. */
static int open_proc(int pid, int thread, const char *name) {
    char path[128], *at = put(path, "/proc/");
    at = pid ? put(put_number(at, pid), "/task/") : put(at, "self/");
    if (thread) at = put(put_number(at, thread), "/");
    *put(at, name) = 0;
    return (int)call(OPENAT, AT_FDCWD, path, *name ? 0 : DIRECTORY, 0);
}

/* Reads a file of a thread; returns its length, 0 if it cannot be read. */
static long read_proc(int fd, char *text, long size) {
    long length = 0, n;
    if (fd < 0) return 0;
    while (length < size - 1 && (n = call(READ, fd, text + length, size - 1 - length, 0)) > 0) length += n;
    call(CLOSE, fd, 0, 0, 0);
    text[length] = 0;
    return length;
}

static const char *find(const char *text, const char *word) {
    for (; *text; text++) {
        long i = 0;
        while (word[i] && text[i] == word[i]) i++;
        if (!word[i]) return text + i;
    }
    return NULL;
}

static uint64_t number_at(const char *text, int base) {
    uint64_t number = 0;
    while (*text == ' ' || *text == '\t' || *text == ':') text++;
    for (;; text++) {
        int digit = *text >= '0' && *text <= '9' ? *text - '0' : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10 : 99;
        if (*text == '.') continue; /* milliseconds with six places are nanoseconds */
        if (digit >= base) return number;
        number = number * (uint64_t)base + (uint64_t)digit;
    }
}

/* Returns when a thread last ran, by its processor's own clock, ns; UNKNOWN if that is not told. The scheduler sets it
 * to 0 when it moves a thread to another processor, until the thread runs there. */
static int64_t last_ran(int pid, int thread) {
    static char text[8192];
    if (!read_proc(open_proc(pid, thread, "sched"), text, sizeof text)) return UNKNOWN;
    const char *found = find(text, "se.exec_start");
    int64_t ran = found ? (int64_t)number_at(found, 10) : 0;
    return ran ? ran : UNKNOWN;
}

/* Returns how far a processor's own clock is behind the monotonic one, ns; UNKNOWN if that is not told. */
static int64_t clock_behind(long processor) {
    if (processor < 0 || processor >= MOST_PROCESSORS) return UNKNOWN;
    if (behind[processor] == UNKNOWN) {
        uint64_t only[MOST_PROCESSORS / 64] = {0};
        int64_t moment[2] = {0, 1000};
        only[processor / 64] = 1UL << processor % 64;
        if (call(SET_AFFINITY, 0, sizeof only, only, 0) < 0) return UNKNOWN;
        call(NANOSLEEP, moment, 0, 0, 0); /* so that it has just begun to run */
        int64_t time = now(), self = last_ran(0, 0);
        behind[processor] = self == UNKNOWN ? UNKNOWN : time - self;
        call(SET_AFFINITY, 0, sizeof processors, processors, 0);
    }
    return behind[processor];
}

/* Returns a number of /proc/PID/stat; fields count from 1, and the second one is a name in parentheses. */
static int64_t stat_field(const char *stat, int wanted) {
    for (const char *next; (next = find(stat, ")")); stat = next) continue;
    for (int field = 2; field < wanted && *stat; stat++) field += *stat == ' ';
    return (int64_t)number_at(stat, 10);
}

/* Returns when a thread began to wait, by the monotonic clock, ns; UNKNOWN if that is not told. The clocks of processors
 * may differ in ways that nobody tells of, so what would have been before the thread itself began is not believed. */
static int64_t began_at(int pid, int thread) {
    char stat[1024];
    int64_t ran = last_ran(pid, thread);
    if (ran == UNKNOWN || !read_proc(open_proc(pid, thread, "stat"), stat, sizeof stat)) return UNKNOWN;
    int64_t clock = clock_behind((long)stat_field(stat, PROCESSOR_FIELD));
    if (clock == UNKNOWN) return UNKNOWN;
    int64_t began = ran + clock, age = time_of(BOOT_TIME) - stat_field(stat, START_FIELD) * TICK;
    return began < now() - age - 2 * TICK ? UNKNOWN : began;
}

/* Whether a signal waits that a handler of the thread takes: it interrupts the call, and rightly so. */
static bool will_be_interrupted(int pid, int thread) {
    static char status[8192];
    const char *own, *shared, *blocked, *caught;
    if (!read_proc(open_proc(pid, thread, "status"), status, sizeof status)) return true;
    if (!(own = find(status, "SigPnd")) || !(shared = find(status, "ShdPnd")) || !(blocked = find(status, "SigBlk")) ||
        !(caught = find(status, "SigCgt")))
        return true;
    return (number_at(own, 16) | number_at(shared, 16)) & number_at(caught, 16) & ~number_at(blocked, 16);
}

static void each_thread(int pid, void (*act)(int pid, int thread)) {
    static char entries[4096];
    int fd = open_proc(pid, 0, "");
    long size;
    while (fd >= 0 && (size = call(GETDENTS, fd, entries, sizeof entries, 0)) > 0)
        for (long at = 0; at < size; at += *(uint16_t *)(void *)(entries + at + 16))
            if (entries[at + 19] != '.') act(pid, (int)number_at(entries + at + 19, 10));
    if (fd >= 0) call(CLOSE, fd, 0, 0, 0);
}

/* -- before the threads are stopped -- */

static bool has_timeout(long number) {
    return number == POLL || number == NANOSLEEP || number == RT_SIGTIMEDWAIT || number == FUTEX || number == SEMTIMEDOP ||
           number == CLOCK_NANOSLEEP || number == EPOLL_WAIT || number == EPOLL_PWAIT || number == EPOLL_PWAIT2;
}

static void note_wait(int pid, int thread) {
    char said[256];
    if (wait_count == MOST_THREADS || !read_proc(open_proc(pid, thread, "syscall"), said, sizeof said)) return;
    if (said[0] < '0' || said[0] > '9') return; /* running, or in no call */
    long number = (long)number_at(said, 10);
    if (has_timeout(number)) waits[wait_count++] = (struct wait){thread, number, began_at(pid, thread), NOWHERE, 0, 1, 0};
}

static int before_the_stop(int pid) {
    each_thread(pid, note_wait);
    return 0;
}

/* -- while they stand still -- */

static int64_t peek(int thread, uint64_t address, bool *readable) {
    int64_t word = 0;
    *readable = *readable && call(PTRACE, PEEK, thread, address, &word) == 0;
    return word;
}

static bool poke_time(int thread, uint64_t address, int64_t ns, int64_t unit) {
    return call(PTRACE, POKE, thread, address, ns / SECOND) == 0 &&
           call(PTRACE, POKE, thread, address + 8, ns % SECOND / unit) == 0;
}

/* Notes where a thread's timeout is to stand, and puts what is left of it there; returns whether it could be. */
static bool write_left(struct wait *wait, struct registers *registers) {
    int64_t left = wait->ends - now();
    if (left < 0) left = 0;
    uint64_t ms = (uint64_t)((left + SECOND / 1000 - 1) / (SECOND / 1000));
    if (wait->place == IN_RDX) registers->rdx = ms;
    else if (wait->place == IN_R10) registers->r10 = ms;
    else return poke_time(wait->thread, wait->address, left, wait->unit);
    return true;
}

static struct wait *wait_of(int thread, long number) {
    for (int i = 0; i < wait_count; i++)
        if (waits[i].thread == thread && waits[i].call == number) return &waits[i];
    if (wait_count == MOST_THREADS) return NULL;
    waits[wait_count] = (struct wait){thread, number, UNKNOWN, NOWHERE, 0, 1, 0};
    return &waits[wait_count++];
}

/* A timeout of milliseconds in a register; negative for none. */
static bool go_on_ms(int thread, struct registers *registers, int place) {
    int timeout = (int)(place == IN_RDX ? registers->rdx : registers->r10);
    if (timeout < 0) return true;
    struct wait *wait = wait_of(thread, (long)registers->call);
    if (!wait) return false;
    wait->ends = (wait->began == UNKNOWN ? now() : wait->began) + timeout * (SECOND / 1000);
    wait->place = place;
    return write_left(wait, registers);
}

/* A timeout in memory, at the address that a register holds; none if it is 0. `left` is where the kernel has written what
 * is left of it, 0 if nowhere. The new one stands below the stack, where nothing is until a function is called. */
static bool go_on_time(int thread, struct registers *registers, uint64_t *address, uint64_t left) {
    bool readable = true;
    if (!*address) return true;
    struct wait *wait = wait_of(thread, (long)registers->call);
    if (!wait) return false;
    uint64_t from = left ? left : *address;
    int64_t seconds = peek(thread, from, &readable), ns = peek(thread, from + 8, &readable);
    if (!readable || seconds < 0 || ns < 0 || ns >= SECOND) return false;
    if (seconds > LONGEST) return true; /* as `sleep infinity` has it: the whole of it is as long as what is left */
    wait->ends = (left || wait->began == UNKNOWN ? now() : wait->began) + seconds * SECOND + ns;
    wait->address = (registers->rsp - BELOW_THE_STACK) & ~15UL;
    wait->place = IN_MEMORY;
    *address = wait->address;
    return write_left(wait, registers);
}

/* Calls that the kernel itself has begun again, having written what is left of their timeout over it, where that was. */
static void note_its_own_time(int thread, const struct registers *registers) {
    bool readable = true;
    uint64_t address = registers->call == PPOLL ? registers->rdx : registers->r8;
    if (registers->call != PPOLL && registers->call != SELECT && registers->call != PSELECT6) return;
    struct wait *wait = address ? wait_of(thread, (long)registers->call) : NULL;
    if (!wait) return;
    int64_t unit = registers->call == SELECT ? 1000 : 1;
    int64_t seconds = peek(thread, address, &readable), parts = peek(thread, address + 8, &readable);
    if (!readable || seconds < 0 || seconds > LONGEST || parts < 0 || parts >= SECOND / unit) return;
    wait->ends = now() + seconds * SECOND + parts * unit;
    wait->address = address;
    wait->unit = unit;
    wait->place = IN_ITS_OWN;
}

/* Returns whether a call that returned with a code can go on, having set what it is to go on with. */
static bool can_go_on(int thread, struct registers *registers, long code) {
    struct registers *r = registers;
    if (code == RESTART_BLOCK) {
        if (r->call == POLL) return go_on_ms(thread, r, IN_RDX);
        if (r->call == NANOSLEEP) return go_on_time(thread, r, &r->rdi, r->rsi);
        if (r->call == CLOCK_NANOSLEEP) return !(r->rsi & TIMER_ABSTIME) && go_on_time(thread, r, &r->rdx, r->r10);
        if (r->call != FUTEX) return false;
        return (r->rsi & FUTEX_COMMAND) != FUTEX_WAIT || go_on_time(thread, r, &r->r10, 0); /* the others' are a moment */
    }
    switch (r->call) {
    case EPOLL_WAIT:
    case EPOLL_PWAIT: return go_on_ms(thread, r, IN_R10);
    case RT_SIGTIMEDWAIT: return go_on_time(thread, r, &r->rdx, 0);
    case SEMTIMEDOP:
    case EPOLL_PWAIT2: return go_on_time(thread, r, &r->r10, 0);
    case READ: case WRITE: case READV: case WRITEV: case RECVFROM: case RECVMSG: case SENDTO: case SENDMSG:
    case ACCEPT: case ACCEPT4: case SEMOP: return true; /* a socket's own timeout begins anew: nothing tells what is left */
    default: return false;
    }
}

/* Whether a thread was stopped by a signal (SIGSTOP): then EINTR is what it is to see when it goes on. */
static bool stopped_by_signal(int thread) {
    int signal[32];
    return call(PTRACE, GET_SIGNAL, thread, 0, signal) != 0 || signal[0] != SIGTRAP_NUMBER;
}

static void let_go_on(int pid, int thread) {
    struct registers registers;
    bool readable = true;
    if (call(PTRACE, GET_REGISTERS, thread, 0, &registers) != 0 || (int64_t)registers.call < 0) return;
    long code = (long)registers.rax;
    if (code == RESTART_NO_HANDLER) note_its_own_time(thread, &registers);
    if (code != RESTART_BLOCK && code != EINTR_CODE) return;
    if (code == EINTR_CODE && stopped_by_signal(thread)) return;
    if ((peek(thread, registers.rip - 2, &readable) & 0xffff) != SYSCALL_INSTRUCTION || !readable) return;
    if (will_be_interrupted(pid, thread) || !can_go_on(thread, &registers, code)) return;
    registers.rax = registers.call;
    registers.rip -= 2;
    registers.call = UINT64_MAX; /* in no call: neither the kernel nor CRIU has anything to begin again */
    call(PTRACE, SET_REGISTERS, thread, 0, &registers);
}

static int while_stopped(int pid) {
    each_thread(pid, let_go_on);
    return 0;
}

/* -- when the dump is done, and they are about to run again -- */

/* What is in the images is what was left when they were stopped; what runs on has been standing still since. */
static void at_the_end(int stage, int result) {
    struct registers registers;
    (void)stage;
    (void)result;
    for (int i = 0; i < wait_count; i++) {
        struct wait *wait = &waits[i];
        if (wait->place == IN_ITS_OWN) write_left(wait, &registers);
        if (wait->place == NOWHERE || wait->place == IN_ITS_OWN) continue;
        if (call(PTRACE, GET_REGISTERS, wait->thread, 0, &registers) != 0) continue;
        if ((long)registers.rax != wait->call || (int64_t)registers.call >= 0) continue;
        if (write_left(wait, &registers) && wait->place != IN_MEMORY)
            call(PTRACE, SET_REGISTERS, wait->thread, 0, &registers);
    }
}

static int at_the_beginning(int stage) {
    (void)stage;
    for (int i = 0; i < MOST_PROCESSORS; i++) behind[i] = UNKNOWN;
    call(GET_AFFINITY, 0, sizeof processors, processors, 0);
    return 0;
}

#else

static int before_the_stop(int pid) { return (void)pid, 0; }
static int while_stopped(int pid) { return (void)pid, 0; }
static int at_the_beginning(int stage) { return (void)stage, 0; }
static void at_the_end(int stage, int result) { (void)stage, (void)result; }

#endif

__attribute__((visibility("default"))) struct plugin CR_PLUGIN_DESC = {
    "tvsnap-interrupted", at_the_beginning, at_the_end, 0x200, HOOKS,
    {[PAUSE_DEVICES] = before_the_stop, [CHECKPOINT_DEVICES] = while_stopped},
};
