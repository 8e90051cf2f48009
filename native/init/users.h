/* Users: the image's passwd and group, parsed here since a static program has no NSS. */
#ifndef TVSNAP_USERS_H
#define TVSNAP_USERS_H

#include "basics.h"

struct user {
    uid_t uid;
    gid_t gid;
    gid_t groups[64];
    int group_count;
    char name[64], home[256];
};

bool find_user(const char *wanted, struct user *u);
bool become(const struct user *u);

#endif
