/* Attributes of a process that the kernel's security modules keep: files in /proc/PID/attr, and in a folder for each
 * module. A module with attributes gives each process a current one. */
#ifndef TVSNAP_LABELS_H
#define TVSNAP_LABELS_H

#define LABEL_MODULES {"attr/", "attr/apparmor/", "attr/smack/"}
#define CURRENT_LABEL "current"
#define OTHER_LABELS {"prev", "exec", "fscreate", "keycreate", "sockcreate"}

#endif
