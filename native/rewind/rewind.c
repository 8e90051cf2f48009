#include "rewind.h"

#include <stdlib.h>
#include <sys/prctl.h>

#include "changes.h"
#include "compare.h"
#include "restore.h"
#include "tracee.h"

enum { MOST_PROCESSES = 2 };

struct note {
    struct process processes[MOST_PROCESSES];
    int count;
};

struct note *rewind_new(void) { return calloc(1, sizeof(struct note)); }

void rewind_free(struct note *note) {
    for (int i = 0; note && i < MOST_PROCESSES; i++) {
        struct process *p = &note->processes[i];
        free(p->facts.data);
        free(p->facts_now.data);
        free_layout(&p->was);
        free_layout(&p->is);
        free(p->data);
        free(p->others);
    }
    free(note);
}

/* Makes our pauses as short as requested. */
static void sleep_exactly(void) { prctl(PR_SET_TIMERSLACK, 1L); }

/* Stops all processes; returns how many must be released. */
static int stop_all(struct note *note, bool *good, struct reason *why) {
    int stopped = 0;
    for (int i = 0; i < note->count; i++) note->processes[i].held = false;
    for (*good = true; *good && stopped < note->count; stopped++) *good = stop(&note->processes[stopped], why);
    return stopped;
}

int rewind_holds(const struct note *note) {
    bool held = false;
    for (int i = 0; i < note->count; i++) held |= note->processes[i].held;
    return held;
}

static int record(struct note *note, const int *pids, int count, bool (*one)(struct process *, struct reason *), char *text,
                  size_t room) {
    struct reason why = {text, room};
    bool good;
    if (count > MOST_PROCESSES) return fail(&why, "too many processes"), 1;
    sleep_exactly();
    note->count = count;
    for (int i = 0; i < count; i++) {
        struct process *p = &note->processes[i];
        p->pid = pids[i];
        p->start = 0;
        p->handle = p->directory = p->memory = NONE;
        p->broken = p->exact = false;
        p->first = &note->processes[0];
    }
    int stopped = stop_all(note, &good, &why);
    for (int i = 0; good && i < count; i++) good = one(&note->processes[i], &why);
    return let_go(note->processes, stopped) && good ? 0 : 1;
}

/* Records the processes, replacing the previous record; returns 0 on success, else the reason in `text`. */
int rewind_note(struct note *note, const int *pids, int count, char *text, size_t room) {
    return record(note, pids, count, note_process, text, room);
}

/* The same without their memory, for rewind_see. */
int rewind_frame(struct note *note, const int *pids, int count, char *text, size_t room) {
    return record(note, pids, count, note_frame, text, room);
}

/* Returns the recorded registers of a process, in the order of user_regs_struct. */
const unsigned long *rewind_registers(const struct note *note, int process) {
    return (const unsigned long *)&note->processes[process].registers;
}

/* Tells the memory and the registers of all processes in `memory`, if they have changed in nothing else. Returns 0 then,
 * and the processes stand until rewind_go_on, which the same thread must call. 1: they differ, with the reason in `text`,
 * or -1: they were ended; in both cases, they do not stand. */
int rewind_see(struct note *note, struct rewind_memory *memory, char *text, size_t room) {
    struct reason why = {text, room};
    bool good;
    sleep_exactly();
    int stopped = stop_all(note, &good, &why);
    for (int i = 0; good && i < note->count; i++) good = see_changes(&note->processes[i], &memory[i], &why);
    if (good) return 0;
    return let_go(note->processes, stopped) ? 1 : -1;
}

int rewind_go_on(struct note *note) {
    for (int i = 0; i < note->count; i++) {
        free(note->processes[i].data);
        note->processes[i].data = NULL;
        note->processes[i].data_room = 0;
    }
    return let_go(note->processes, note->count) ? 0 : -1;
}

/* Restores the processes; returns 0 on success. 1: they differ, and go on as they are, with the reason in `text`.
 * -1: they were restored partially, and must not go on. */
int rewind_to(struct note *note, char *text, size_t room) {
    struct reason why = {text, room};
    int count = note->count, result = 1;
    bool good;
    sleep_exactly();
    int stopped = stop_all(note, &good, &why);
    for (int i = 0; good && i < count; i++) good = compare_process(&note->processes[i], &why);
    if (good) result = 0;
    for (int i = 0; good && i < count; i++) good = set_process(&note->processes[i], &why);
    if (!good && result == 0) result = -1;
    if (!let_go(note->processes, stopped)) result = -1;
    return result;
}
