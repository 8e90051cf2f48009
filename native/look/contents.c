/* Reads many small files at once. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init/entry.h"
#include "limit.h"
#include "look.h"
#include "memory.h"
#include "result.h"

enum { OFTEN = 64, MOST_HEAD = 128 };

/* Opens a file below a directory as `paths.open_beneath` does. */
static int open_beneath(int root, const char *path) {
    struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOATIME | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

static size_t read_whole(int fd, char *data, size_t size) {
    size_t done = 0;
    ssize_t n;
    while (done < size && (n = pread(fd, data + done, size - done, (off_t)done)) > 0) done += (size_t)n;
    return done;
}

/* Adds `SIZE MTIME CTIME FLAGS\0` and the contents; just a zero byte if it is no regular file of at most `most` bytes, or
 * cannot be read. Returns 0, or an error number. */
static int add_contents(struct text *to, int root, const char *path, char *room, size_t most) {
    struct stat before, after;
    char head[MOST_HEAD];
    size_t n = 1;
    *head = 0;
    int fd = open_beneath(root, path);
    bool small = fd >= 0 && fstat(fd, &before) == 0 && S_ISREG(before.st_mode) && (size_t)before.st_size <= most;
    size_t size = small ? (size_t)before.st_size : 0;
    if (small && read_whole(fd, room, size) == size && fstat(fd, &after) == 0 && after.st_size == before.st_size)
        n = 1 + (size_t)snprintf(head, sizeof head, "%zu %" PRId64 " %" PRId64 " %x", size, nanoseconds(after.st_mtim),
                                 nanoseconds(after.st_ctim), read_flags(fd));
    if (fd >= 0) close(fd);
    return add_text(to, head, n) && (n == 1 || add_text(to, room, size)) ? 0 : ENOMEM;
}

/* Reads files of at most `most` bytes, given `count` paths below a directory with a zero byte after each, in at most
 * `seconds` of processor time. */
int look_contents(int root, const char *paths, int count, size_t most, double seconds, struct told *told) {
    struct text found = {0};
    int64_t end = limit_after(seconds);
    char *room = malloc(most + 1);
    int error = room ? 0 : ENOMEM;
    for (int i = 0; i < count && !error; i++) {
        error = i % OFTEN == 0 && is_over(end) ? ETIME : add_contents(&found, root, paths, room, most);
        paths += strlen(paths) + 1;
    }
    free(room);
    return tell(told, &found, error);
}
