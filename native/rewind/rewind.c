#include "rewind.h"

#include <stdlib.h>
#include <sys/prctl.h>

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

/* Our pauses are as short as they say. */
static void sleep_exactly(void) { prctl(PR_SET_TIMERSLACK, 1L); }

/* Stops all of the processes; returns how many are to be let go. */
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

/* Takes down what processes are, in place of what was taken down before; 0 if that could be had, else why it could not. */
int rewind_note(struct note *note, const int *pids, int count, char *text, size_t room) {
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
        p->broken = false;
    }
    int stopped = stop_all(note, &good, &why);
    for (int i = 0; good && i < count; i++) good = note_process(&note->processes[i], &why);
    return let_go(note->processes, stopped) && good ? 0 : 1;
}

/* Makes processes what they were; 0 if they are that now. 1: they are others, and go on as they are; why is told. -1: they
 * could not be made so, and must not go on. */
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
