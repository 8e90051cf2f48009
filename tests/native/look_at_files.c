/* Looks at a directory by native/look, built with sanitizers, once for each line of input, whose number is how many seconds a
 * look may take. Prints a line `RESULT CHANGED GONE WHY` for each, the last three in bytes, and the former two of those. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "look/look.h"

int main(int count, char **arguments) {
    char line[64];
    int directory = count == 2 ? open(arguments[1], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    struct files *files = look_files_new();
    if (directory < 0 || !files) return 1;
    while (fgets(line, sizeof line, stdin)) {
        struct told told;
        int result = look_files(files, directory, atof(line), &told);
        printf("%d %zu %zu %zu\n", result, told.changed_length, told.gone_length, strlen(told.why));
        if (told.changed_length) fwrite(told.changed, 1, told.changed_length, stdout);
        if (told.gone_length) fwrite(told.gone, 1, told.gone_length, stdout);
        fflush(stdout);
        look_told_free(&told);
    }
    look_files_free(files);
    close(directory);
    return 0;
}
