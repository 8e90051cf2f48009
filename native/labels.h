/* What the kernel's security modules keep of a process: files in /proc/PID/attr, and in a folder of each module's own. A
 * module that has any gives each process a current one. */
#ifndef TVSNAP_LABELS_H
#define TVSNAP_LABELS_H

#define LABEL_MODULES {"attr/", "attr/apparmor/", "attr/smack/"}
#define CURRENT_LABEL "current"
#define OTHER_LABELS {"prev", "exec", "fscreate", "keycreate", "sockcreate"}

#endif
