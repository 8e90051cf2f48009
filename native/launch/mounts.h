/* A sandbox's root and devices, in a separate mount namespace, so that the host's mount table stays as it is. */
#pragma once

#include <stdbool.h>

#define ROOT "/run/root"     /* also used by backend.py */
#define LAYERS "/run/layers"

enum { TTY_GROUP = 5 };
enum { LOWER_FD = 101, USERS_FD = 141 }; /* the first lower layer, and the user namespace for CRIU */

void private_mounts(void);
void own_mounts(void);
int mount_root(void);
void make_devices(void);
void mount_tree(void);
void enter_root(unsigned long tty_group);
void leave_host(bool with_root);
