#include "basics.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

void die(const char *what) {
    dprintf(2, "tvsnap-init: %s: %s\n", what, error_text(errno));
    _exit(125);
}

int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/* Writes everything, however long that takes: not for PID 1 itself. Returns false on an error. */
bool write_all(int fd, const void *data, size_t length) {
    const char *at = data;
    while (length) {
        ssize_t n = write(fd, at, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        length -= (size_t)n;
    }
    return true;
}

/* Writes what is accepted at once; returns how many bytes, or -1 if there is no reader any more. */
ssize_t write_now(int fd, const char *data, size_t length) {
    size_t done = 0;
    while (done < length) {
        ssize_t n = write(fd, data + done, length - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) return -1;
        done += (size_t)n;
    }
    return (ssize_t)done;
}
