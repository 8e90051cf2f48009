/* Executes its arguments as PID 1 does; prints the error's number if that cannot be. Without arguments, prints the texts of
 * all errors, a line each. */
#include <stdio.h>

#include "child.h"

int main(int argc, char **argv) {
    if (argc > 1) {
        execute(argv + 1);
        printf("%d\n", errno);
        return 99;
    }
    for (int error = 1; error <= 133; error++) puts(error_text(error));
    return 0;
}
