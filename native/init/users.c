#include "users.h"

#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEED "/run/tvsnap/seed"

/* Opens one of the image's lists; NULL unless it is a regular file: a FIFO there must not block PID 1. */
static FILE *open_list(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *f = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (!f && fd >= 0) close(fd);
    return f;
}

/* Reads the next line that is not empty, and splits it at its colons; fields that it lacks are empty. */
static bool next_entry(FILE *f, char **line, size_t *room, char **fields, int count) {
    static char none[] = "";
    while (f && getline(line, room, f) >= 0) {
        char *rest = *line + strspn(*line, " \t\r\n");
        for (size_t end = strlen(rest); end > 0 && strchr(" \t\r\n", rest[end - 1]); end--) rest[end - 1] = 0;
        if (!*rest) continue;
        for (int i = 0; i < count; i++)
            if (!(fields[i] = strsep(&rest, ":"))) fields[i] = none;
        return true;
    }
    return false;
}

static bool is_number(const char *text, unsigned *number) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    unsigned long found = strtoul(text, &end, 10);
    if (*end || errno || found > INT_MAX) return false;
    *number = (unsigned)found;
    return true;
}

/* A list is asked for a name or a number, of which the first entry that has either counts. */
static bool is_wanted(const char *wanted, const char *name, const char *id) {
    return strcmp(name, wanted) == 0 || strcmp(id, wanted) == 0;
}

static bool find_in_passwd(const char *wanted, struct user *u, char **name) {
    char *line = NULL, *fields[7];
    size_t room = 0;
    bool found = false, usable = false;
    FILE *f = open_list("/etc/passwd");
    while (!found && next_entry(f, &line, &room, fields, 7)) {
        if (!is_wanted(wanted, fields[0], fields[2])) continue;
        found = true;
        usable = is_number(fields[2], &u->uid) && is_number(fields[3], &u->gid); /* others must not become root */
        snprintf(u->home, sizeof u->home, "%s", *fields[5] ? fields[5] : "/");
        *name = strdup(fields[0]);
    }
    if (f) fclose(f);
    free(line);
    if (found) return usable;
    bool is_root = strcmp(wanted, "root") == 0; /* exists even in an image without the list */
    snprintf(u->home, sizeof u->home, is_root ? "/root" : "/");
    u->uid = u->gid = 0;
    return is_root || is_number(wanted, &u->uid);
}

/* Finds a group, or without one those of which somebody is a member. */
static bool find_in_group(const char *wanted, const char *member, struct user *u) {
    char *line = NULL, *fields[4];
    size_t room = 0;
    bool found = !*wanted;
    unsigned gid;
    FILE *f = open_list("/etc/group");
    while ((!found || !*wanted) && next_entry(f, &line, &room, fields, 4)) {
        if (*wanted) {
            if (!is_wanted(wanted, fields[0], fields[2]) || !is_number(fields[2], &gid)) continue;
            u->gid = gid;
            found = true;
        }
        for (char *one; !*wanted && member && (one = strsep(&fields[3], ","));)
            if (strcmp(one, member) == 0 && is_number(fields[2], &gid) && u->group_count < MOST_GROUPS) {
                u->groups[u->group_count++] = gid;
                break;
            }
    }
    if (f) fclose(f);
    free(line);
    return found || is_number(wanted, &u->gid);
}

/* USER, UID, and either with :GROUP or :GID, as `docker run --user` takes them (moby/sys/user, GetExecUser): a number
 * that is in no list has group 0 and the home directory /, and a group takes the place of all others. */
bool find_user(const char *wanted, struct user *u) {
    memset(u, 0, sizeof *u);
    snprintf(u->name, sizeof u->name, "%s", wanted);
    char *text = strdup(wanted), *rest = text, *name = NULL;
    if (!text) return false;
    char *user = strsep(&rest, ":"), *group = rest ? strsep(&rest, ":") : user + strlen(user);
    bool found = find_in_passwd(*user ? user : "0", u, &name);
    u->group_count = 1;
    found = found && find_in_group(group, name, u);
    u->groups[0] = u->gid;
    free(text);
    free(name);
    return found;
}

int print_user(const char *wanted) {
    struct user user;
    if (!find_user(wanted, &user)) return 1;
    printf("%u:", user.uid);
    for (int i = 0; i < user.group_count; i++) printf(i ? ",%u" : "%u", user.groups[i]);
    printf(":%s\n", user.home);
    return fflush(stdout) != 0;
}

/* Returns the number with which a fork was reseeded; "" if it was not. */
static const char *seed(void) {
    static char text[24];
    int fd = open(SEED, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[length > 0 ? length : 0] = 0;
    return text[strspn(text, "0123456789")] ? "" : text;
}

void set_variables(const struct user *u) {
    char host[HOST_NAME_MAX + 1];
    setenv("HOME", u->home, 0);
    if (gethostname(host, sizeof host) == 0) setenv("HOSTNAME", host, 0);
    const char *number = seed();
    if (*number) setenv("TVSNAP_SEED", number, 1);
}

bool become(const struct user *u) {
    return setgroups((size_t)u->group_count, u->groups) == 0 && setresgid(u->gid, u->gid, u->gid) == 0 &&
           setresuid(u->uid, u->uid, u->uid) == 0;
}

void act_as(const struct user *u) {
    setfsgid(u->gid);
    setfsuid(u->uid);
}

/* The kernel forbids all who lack rights on the machine to look at a process whose user has changed, also after it has
 * changed back. In a fork, CRIU lacks them, so that no snapshot of the fork could be taken. */
void act_as_root(void) {
    setfsuid(0);
    setfsgid(0);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}
