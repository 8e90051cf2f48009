/* Looks at processes by native/look, built with sanitizers: one for each line of input, whose number is its id. Prints five lines
 * `RESULT LENGTH`, of what has run, of its threads, of what it has open, of that as of a shell, and of what it holds, each with so
 * many bytes. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "look/look.h"

static void print(int result, struct told *told) {
    printf("%d %zu\n", result, told->changed_length);
    if (told->changed_length) fwrite(told->changed, 1, told->changed_length, stdout);
    look_told_free(told);
}

int main(int count, char **arguments) {
    char line[64];
    int most = count == 2 ? atoi(arguments[1]) : INT_MAX;
    while (fgets(line, sizeof line, stdin)) {
        struct told told;
        int pid = atoi(line), kind = 0, result = look_ran(&pid, 1, most, &told);
        print(result, &told);
        result = look_threads(pid, &told);
        print(result, &told);
        result = look_descriptors(pid, most, &told);
        print(result, &told);
        result = look_shell(pid, &told);
        print(result, &told);
        result = look_holds(&pid, &kind, 1, 10, &told);
        print(result, &told);
        fflush(stdout);
    }
    return 0;
}
