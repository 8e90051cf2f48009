#include "processes.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest.h"
#include "proc.h"

void remember_processes(void) {
    pid_t *pids;
    size_t n = list_processes(&pids);
    action.before_ticks = now_ticks(); /* only now: processes that began meanwhile may be in the list */
    action.before = realloc(action.before, n * sizeof *pids + 1);
    if (!action.before) die("memory");
    memcpy(action.before, pids, n * sizeof *pids);
    action.before_count = n;
}

/* Whether a process may have been started by the action; `l` is its life. The id of one that began later may be
 * reused. */
static bool is_new(pid_t pid, const struct life *l) {
    if (pid == 1 || pid == guest.shell) return false;
    if (pid == action.child || l->start > action.before_ticks) return true;
    for (size_t i = 0; i < action.before_count; i++)
        if (action.before[i] == pid) return false;
    return true;
}

/* Whether the action started it, unlike a server or a job from before, which has to go on. */
static bool is_ours(pid_t pid, struct life l) {
    enum { MAX_GENERATIONS = 64 };
    for (int i = 0; i < MAX_GENERATIONS && is_new(pid, &l); i++) {
        pid_t parent = l.parent;
        if (parent <= 1 || parent == guest.shell) return true;
        l = (struct life){0};
        bool lives = read_life(parent, &l);
        if (!is_new(parent, &l)) return false;
        if (!lives) return true;
        pid = parent;
    }
    return is_new(pid, &l);
}

/* Returns how many processes got the signal. */
size_t signal_new(int signal) {
    pid_t *pids;
    size_t n = list_processes(&pids), hit = 0;
    for (size_t i = 0; i < n; i++) {
        struct life l;
        if (pids[i] == 1 || pids[i] == guest.shell) continue;
        int process = open_process(pids[i]); /* before it is inspected: see proc.h */
        if (process < 0) continue;
        if (read_life(pids[i], &l) && l.state != 'Z' && is_ours(pids[i], l) && send_signal(process, signal)) hit++;
        close(process);
    }
    return hit;
}

/* Kills every process that the action started. They are stopped first, which a fork bomb cannot outrun. */
void kill_new(void) {
    size_t last = 0;
    for (int round = 0; round < 20; round++) {
        size_t n = signal_new(SIGSTOP);
        if (n == last) break;
        last = n;
    }
    for (int round = 0; round < 200 && signal_new(SIGKILL); round++) usleep(500); /* until they are gone */
}

/* Returns a hash of the ids and the processor time (ns) of the action's processes, if all of them sleep; else 0. */
uint64_t sleeping_time(void) {
    pid_t *pids;
    size_t n = list_processes(&pids);
    uint64_t sum = 1;
    for (size_t i = 0; i < n; i++) {
        struct life l = {0};
        if (pids[i] == 1) continue;
        bool lives = read_life(pids[i], &l);
        if (pids[i] != guest.shell && !is_new(pids[i], &l)) continue;
        char text[512];
        if (!lives || (l.state != 'S' && l.state != 'T' && l.state != 't')) return 0;
        if (read_proc(pids[i], "schedstat", text, sizeof text) <= 0) return 0;
        sum = sum * 31 + (uint64_t)pids[i] + strtoull(text, NULL, 10);
    }
    return sum;
}
