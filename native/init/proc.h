/* Processes as /proc shows them, and signals to them.
 *
 * A process's id may have been reused by the time a signal is sent. So signals are sent by pidfd: what is read by id
 * after that was opened is true of the pidfd's process, unless that has ended.
 */
#ifndef TVSNAP_PROC_H
#define TVSNAP_PROC_H

#include "basics.h"

/* Data on a process from its stat file. */
struct life {
    char state;
    int parent, group;
    unsigned flags; /* of the kernel */
    long nice;
    unsigned long long start; /* clock ticks since boot */
};

size_t list_processes(pid_t **out);
ssize_t read_proc(pid_t pid, const char *name, char *out, size_t room);
bool read_life(pid_t pid, struct life *l);
bool has_ended(const struct life *l);
unsigned long long now_ticks(void);
bool group_lives(pid_t group);
bool read_owner(pid_t pid, uid_t *uid, gid_t *gid);
bool number_is_taken(pid_t pid);
int open_process(pid_t pid);
bool send_signal(int process, int signal);
bool signal_child(pid_t child, int signal);

#endif
