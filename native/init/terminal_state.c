#include "terminal_state.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <time.h>

enum { TERMIOS2 = 44, TIME_STEP = 8 };

/* A terminal's modes and speeds, its size, its line discipline, and whether others may open it; from either end. */
void take_terminal(struct hash *h, int fd) {
    static const int questions[] = {TIOCGETD, TIOCGEXCL, TIOCGSOFTCAR};
    unsigned char modes[TERMIOS2] = {0};
    struct winsize size = {0};
    ioctl(fd, _IOR('T', 0x2A, unsigned char[TERMIOS2]), modes); /* TCGETS2 */
    ioctl(fd, TIOCGWINSZ, &size);
    hash_take(h, modes, sizeof modes);
    hash_take(h, &size, sizeof size);
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        int value = -1;
        ioctl(fd, questions[i], &value);
        hash_take(h, &value, sizeof value);
    }
}

/* Whether a terminal's output was stopped (Ctrl-S, tcflow), or there is no room for more of it. */
bool is_stopped(int slave) {
    struct pollfd its = {slave, POLLOUT, 0};
    return poll(&its, 1, 0) == 0;
}

bool is_terminal(const struct stat *st) {
    unsigned kind = major(st->st_rdev);
    return S_ISCHR(st->st_mode) && ((kind >= 136 && kind <= 143) || (kind == 5 && minor(st->st_rdev) == 2));
}

/* Hashes the times of a terminal's file, or of the directory of terminals, if somebody set them. Reading and writing
 * update them, in steps of 8 s, and never to before the ctime; setting them also changes the ctime. */
void take_times_set(struct hash *h, const struct stat *st) {
    const struct timespec both[] = {st->st_atim, st->st_mtim};
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        bool set = both[i].tv_sec + TIME_STEP < st->st_ctim.tv_sec || both[i].tv_sec > time(NULL) + TIME_STEP;
        hash_number(h, set);
        if (set) hash_take(h, &both[i], sizeof both[i]);
    }
}
