/* Users: the image's passwd and group, parsed here since a static program has no NSS. */
#ifndef TVSNAP_USERS_H
#define TVSNAP_USERS_H

#include "basics.h"

enum { MOST_GROUPS = 1024 };

struct user {
    uid_t uid;
    gid_t gid;
    gid_t groups[MOST_GROUPS]; /* the first is `gid` */
    int group_count;
    char name[256]; /* as it was asked for */
    char home[4096];
};

bool find_user(const char *wanted, struct user *u);
bool become(const struct user *u);

/* Has the kernel check what we open as if a user opened it, until act_as_root. */
void act_as(const struct user *u);
void act_as_root(void);

/* Sets the variables that a runtime of containers adds to the image's, where the image does not set them; and
 * TVSNAP_SEED if the sandbox is a fork that was reseeded. */
void set_variables(const struct user *u);

/* Prints who a user is: its number, its groups, and its home directory. Returns the exit status. */
int print_user(const char *wanted);

#endif
