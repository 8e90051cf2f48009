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
    for (int i = 0; i < count; i++) {
        struct process *p = &note->processes[i];
        *p = (struct process){.pid = pids[i], .start = start_of(pids[i]), .handle = NONE, .memory = NONE};
    }
    for (; good && note->count < count; note->count++) good = stop(&note->processes[note->count], &why);
    for (int i = 0; good && i < count; i++) good = note_process(&note->processes[i], &why);
    if (let_go(note->processes, note->count) && good) return note;
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
    if (!let_go(note->processes, stopped)) result = -1;
    for (int i = 0; i < count; i++) free_layout(&now[i]);
    return result;
}
