/* rewind.h for machines of another architecture. */
#include "rewind.h"

#include <stdio.h>
#include <stdlib.h>

struct note *rewind_new(void) { return malloc(1); }

void rewind_free(struct note *note) { free(note); }

int rewind_note(struct note *note, const int *pids, int count, char *text, size_t room) {
    (void)note, (void)pids, (void)count;
    snprintf(text, room, "processes of this machine's architecture cannot be looked at");
    return 1;
}

int rewind_frame(struct note *note, const int *pids, int count, char *text, size_t room) {
    return rewind_note(note, pids, count, text, room);
}

const unsigned long *rewind_registers(const struct note *note, int process) {
    (void)note, (void)process;
    return NULL;
}

int rewind_see(struct note *note, struct rewind_memory *memory, char *text, size_t room) {
    (void)note, (void)memory, (void)text, (void)room;
    return 1;
}

int rewind_go_on(struct note *note) {
    (void)note;
    return 0;
}

int rewind_holds(const struct note *note) {
    (void)note;
    return 0;
}

int rewind_to(struct note *note, char *text, size_t room) {
    (void)note, (void)text, (void)room;
    return 1;
}
