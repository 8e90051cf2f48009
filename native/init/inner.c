#include "inner.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "guest.h"
#include "proc.h"
#include "terminal_state.h"

enum { MOST_SEGMENTS = 64 };

/* The last use of a shared memory segment: by which process, and when. */
struct use {
    long long id, created, by, attached, detached;
};

/* A checkpoint attaches each segment from outside, by a process without an id here: that use is not the sandbox's.
 * Returns the use before it, as far as it was seen. */
static struct use use_of_ours(struct use found) {
    static struct use seen[MOST_SEGMENTS];
    static size_t count, next;
    size_t i = 0;
    while (i < count && (seen[i].id != found.id || seen[i].created != found.created)) i++;
    if (!found.by && found.attached) return i < count ? seen[i] : found;
    if (i == count) {
        i = next++ % MOST_SEGMENTS;
        if (count < MOST_SEGMENTS) count++;
    }
    return seen[i] = found;
}

/* Hashes a table of System V objects. It shows when each was last used, in whole seconds: an object used within the
 * last one may be used again without a trace, so the hash is then made unique. It also shows which process used
 * shared memory: a live process is not mistaken for another one (in a fork, a server has just attached its own
 * segment). */
static void take_objects(struct hash *h, const char *table) {
    enum { ID = 1, BY = 5, ATTACHED = 11, DETACHED = 12, CREATED = 13, COLUMNS = 16 };
    static uint64_t looks;
    struct buffer text = {0};
    int fd = open(table, O_RDONLY | O_CLOEXEC);
    bool recent = fd < 0 || !read_all(fd, &text), memory = strstr(table, "shm");
    if (fd >= 0) close(fd);
    append(&text, "", 1);
    long long now = time(NULL);
    for (char *line = text.data + strcspn(text.data, "\n"), *end; *line; line += strcspn(line, "\n")) {
        long long column[COLUMNS] = {0};
        int count = 0;
        bool used = false;
        line++;
        for (char *at = line; *at && *at != '\n' && count < COLUMNS; at = end) {
            column[count] = strtoll(at, &end, 10);
            if (end == at) end++;
            else count++;
        }
        if (memory && count > CREATED) {
            struct use use = use_of_ours(
                (struct use){column[ID], column[CREATED], column[BY], column[ATTACHED], column[DETACHED]});
            column[BY] = use.by;
            column[ATTACHED] = use.attached;
            column[DETACHED] = use.detached;
        }
        for (int i = 0; i < count; i++) used = used || (column[i] >= now - 1 && column[i] <= now + 1);
        if (used && !(memory && column[BY] > 0 && number_is_taken((pid_t)column[BY]))) recent = true;
        hash_take(h, column, sizeof column);
    }
    release(&text);
    if (recent) looks++;
    hash_number(h, recent ? looks : 0);
}

static void take_owned(struct hash *h, const struct stat *st) {
    hash_number(h, st->st_mode);
    hash_number(h, st->st_uid);
    hash_number(h, st->st_gid);
    take_times_set(h, st);
}

/* A directory and a file in it that are in no layer: their permissions decide who may make terminals, and see them. */
static void take_devpts(struct hash *h) {
    static const char *const paths[] = {"/dev/pts", "/dev/pts/ptmx"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct stat st;
        if (stat(paths[i], &st)) st = (struct stat){0};
        take_owned(h, &st);
    }
}

/* Digests all of it, and whether the next call has to be told of a loss. */
struct digest inner_state(void) {
    static const char *const objects[] = {"/proc/sysvipc/msg", "/proc/sysvipc/sem", "/proc/sysvipc/shm"};
    struct hash h = hash_begun();
    char name[64];
    struct stat st;
    int number;
    pid_t group = 0;
    hash_number(&h, guest.loss_untold);
    take_terminal(&h, guest.master);
    take_devpts(&h);
    int slave = ioctl(guest.master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    hash_number(&h, slave >= 0 && is_stopped(slave));
    if (slave >= 0) close(slave);
    hash_number(&h, ioctl(guest.master, TIOCGPGRP, &group) == 0 && group && group != guest.shell);
    if (ioctl(guest.master, TIOCGPTN, &number) == 0) {
        snprintf(name, sizeof name, "/dev/pts/%d", number);
        if (stat(name, &st) == 0) take_owned(&h, &st);
    }
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) take_objects(&h, objects[i]);
    return hash_end(&h);
}
