#include "users.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens one of the image's lists; NULL unless it is a regular file: a FIFO there must not block PID 1. */
static FILE *open_list(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *f = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (!f && fd >= 0) close(fd);
    return f;
}

bool find_user(const char *wanted, struct user *u) {
    char line[1024];
    unsigned long number = strtoul(wanted, NULL, 10);
    bool numeric = wanted[0] >= '0' && wanted[0] <= '9';
    bool found = false;
    memset(u, 0, sizeof *u);
    FILE *f = open_list("/etc/passwd");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *field[7], *rest = line;
        int n = 0;
        line[strcspn(line, "\n")] = 0;
        while (n < 7 && (field[n] = strsep(&rest, ":"))) n++;
        if (n < 6) continue;
        if (numeric ? strtoul(field[2], NULL, 10) != number : strcmp(field[0], wanted) != 0) continue;
        u->uid = (uid_t)strtoul(field[2], NULL, 10);
        u->gid = (gid_t)strtoul(field[3], NULL, 10);
        snprintf(u->name, sizeof u->name, "%s", field[0]);
        snprintf(u->home, sizeof u->home, "%s", field[5]);
        found = true;
    }
    if (f) fclose(f);
    if (!found && numeric) {
        u->uid = u->gid = (uid_t)number;
        snprintf(u->name, sizeof u->name, "%s", wanted);
        snprintf(u->home, sizeof u->home, "/");
        found = true;
    }
    if (!found && strcmp(wanted, "root") == 0) {
        snprintf(u->name, sizeof u->name, "root");
        snprintf(u->home, sizeof u->home, "/root");
        found = true;
    }
    if (!found || u->uid == (uid_t)-1 || u->gid == (gid_t)-1) return false; /* -1: setresuid would stay root */
    u->groups[u->group_count++] = u->gid;
    f = open_list("/etc/group");
    while (f && fgets(line, sizeof line, f) && u->group_count < 64) {
        char *rest = line;
        line[strcspn(line, "\n")] = 0;
        if (!strsep(&rest, ":") || !strsep(&rest, ":")) continue;
        char *gid = strsep(&rest, ":"), *member;
        while (gid && rest && (member = strsep(&rest, ",")))
            if (strcmp(member, u->name) == 0) {
                u->groups[u->group_count++] = (gid_t)strtoul(gid, NULL, 10);
                break;
            }
    }
    if (f) fclose(f);
    return true;
}

bool become(const struct user *u) {
    return setgroups((size_t)u->group_count, u->groups) == 0 && setresgid(u->gid, u->gid, u->gid) == 0 &&
           setresuid(u->uid, u->uid, u->uid) == 0;
}
