#include "checks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error_text.h"

int complaints = STDERR_FILENO, failure = 1;

void fail(const char *what) {
    dprintf(complaints, "%s: %s\n", what, error_text(errno));
    exit(failure);
}

void check(bool ok, const char *what) {
    if (!ok) fail(what);
}

void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    check(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
    close(fd);
}

void read_file(const char *path, char *text, unsigned size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
    check(length >= 0, path);
    text[length] = 0;
    close(fd);
}
