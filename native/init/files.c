#include "files.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int get_file(const char *path, const char *limit_text) {
    long long limit = atoll(limit_text);
    struct stat st;
    if (stat(path, &st)) return errno;
    if (S_ISDIR(st.st_mode)) return EISDIR;
    if (!S_ISREG(st.st_mode)) return EINVAL; /* not even opened, which would wake a process at the other end of a FIFO */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) return errno;
    if (!S_ISREG(st.st_mode)) return EINVAL;
    if (st.st_size > limit) return EFBIG;
    static char chunk[65536];
    long long total = 0;
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) > 0) {
        if ((total += n) > limit) return EFBIG;
        if (!write_all(1, chunk, (size_t)n)) return EIO;
    }
    return n < 0 ? errno : 0;
}

int put_file(const char *path) {
    char parent[PATH_MAX];
    if (!*path) return ENOENT;
    if (snprintf(parent, sizeof parent, "%s", path) >= (int)sizeof parent) return ENAMETOOLONG;
    for (char *at = parent + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        if (mkdir(parent, 0777) && errno != EEXIST) return errno;
        *at = '/';
    }
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return EINVAL; /* as in get_file */
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0 || fstat(fd, &st)) return errno;
    if (!S_ISREG(st.st_mode)) return EINVAL;
    static char chunk[65536];
    ssize_t n;
    while ((n = read(0, chunk, sizeof chunk)) > 0)
        if (!write_all(fd, chunk, (size_t)n)) return errno ? errno : EIO;
    if (n < 0) return errno;
    return close(fd) ? errno : 0;
}

/* Sends stdin to the Unix socket of a service, and its answer to stdout. */
int ask_service(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static char chunk[65536];
    ssize_t n;
    if (strlen(path) >= sizeof address.sun_path) return ENAMETOOLONG;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) return errno;
    signal(SIGPIPE, SIG_IGN); /* a service that has ended is an error like others */
    while ((n = read(0, chunk, sizeof chunk)) > 0)
        if (!write_all(fd, chunk, (size_t)n)) return errno ? errno : EIO;
    if (n < 0 || shutdown(fd, SHUT_WR)) return errno;
    bool answered = false;
    while ((n = read(fd, chunk, sizeof chunk)) > 0) {
        answered = true;
        if (!write_all(1, chunk, (size_t)n)) return EIO;
    }
    return n < 0 ? errno : answered ? 0 : ECONNRESET;
}
