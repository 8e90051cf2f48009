#include "output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest.h"
#include "home.h"

/* Makes a new FIFO in place of the old one, which processes that have it open keep. */
bool make_output_fifo(void) {
    struct stat home;
    make_home();
    bool found = lstat(HOME_DIR, &home) == 0;
    /* If it is in a layer below, as in forks on Docker, overlayfs goes on counting the link of a file that is open and
     * deleted, and CRIU then assumes that it has another name. After a copy-up it is counted like any file. */
    if (lchown(OUTPUT_PATH, guest.user.uid, guest.user.gid)) errno = 0;
    clear_path(OUTPUT_PATH);
    bool made = mkfifo(OUTPUT_PATH, 0622) == 0 && chmod(OUTPUT_PATH, 0622) == 0 &&
                chown(OUTPUT_PATH, guest.user.uid, guest.user.gid) == 0;
    /* The directory is inspected like any other: that a job keeps its call's FIFO must leave no trace there. */
    struct timespec times[] = {home.st_atim, home.st_mtim};
    int why = errno;
    if (found) utimensat(AT_FDCWD, HOME_DIR, times, AT_SYMLINK_NOFOLLOW);
    errno = why;
    return made;
}

/* Makes a new FIFO if a command has put something else in its place; returns false, with errno, on failure. */
bool keep_output_fifo(void) {
    struct stat st;
    return (lstat(OUTPUT_PATH, &st) == 0 && S_ISFIFO(st.st_mode)) || make_output_fifo();
}

/* Sets the FIFO's times. Any output changes them, so observations ignore them; but times that an action sets must be
 * invisible to the next one. */
void touch_output(void) { utimensat(AT_FDCWD, OUTPUT_PATH, NULL, AT_SYMLINK_NOFOLLOW); }

/* Opens our end of the FIFO, from which the output of the next command is read. */
void open_output(void) {
    struct stat st;
    if (guest.out_reader >= 0) close(guest.out_reader);
    guest.out_reader = open(OUTPUT_PATH, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (guest.out_reader >= 0 && (fstat(guest.out_reader, &st) || !S_ISFIFO(st.st_mode))) {
        close(guest.out_reader); /* a command put something else there, for which poll would always return */
        guest.out_reader = -1;
    }
}

/* Goes on reading from the output of a finished action, until its last writer closes it. */
void leave_to_drain(int fd) {
    if (guest.drain_count < MAX_DRAINS) guest.drains[guest.drain_count++] = fd;
    else close(fd);
}

/* Leaves the output of the last command to the jobs that have it open, and makes another one at once, so that we are
 * always the same between two calls. */
void renew_output(void) {
    leave_to_drain(guest.out_reader);
    guest.out_reader = -1;
    make_output_fifo();
    open_output();
}

/* `polled`: the results of poll for the first `count` drains. */
void read_drains(const struct pollfd *polled, int count) {
    int kept = 0;
    for (int i = 0; i < guest.drain_count; i++) {
        char chunk[65536];
        bool ended = i < count && polled[i].revents && read(guest.drains[i], chunk, sizeof chunk) == 0;
        if (ended) close(guest.drains[i]);
        else guest.drains[kept++] = guest.drains[i];
    }
    guest.drain_count = kept;
}

/* Captures what can be read, at most 1 MiB per turn: an endless writer must not keep us from the shell's report, other
 * clients or the timeout. Returns true at the end of the file. */
bool drain_output(void) {
    char chunk[65536];
    ssize_t n = 1;
    int fd = action.output;
    for (int i = 0; i < 16 && fd >= 0 && (n = read(fd, chunk, sizeof chunk)) > 0; i++)
        capture_add(&action.capture, chunk, (size_t)n);
    return fd >= 0 && n == 0;
}
