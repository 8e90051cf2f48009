/* The state of PID 1.
 *
 * It is one thread around one poll: `guest` lives as long as the sandbox, `action` is the current run, exec or typing
 * of keys, if any. Both are in every snapshot, so they are small and contain nothing from outside.
 */
#ifndef TVSNAP_GUEST_H
#define TVSNAP_GUEST_H

#include "capture.h"
#include "hash.h"
#include "protocol.h"
#include "users.h"

enum { MAX_CLIENTS = 8, MAX_DRAINS = 64 };

struct client {
    int input, output;      /* -1: none; the same for a socket */
    bool lasting;           /* our standard input and output: never dropped */
    int64_t ended;          /* lasting: when its end was found, where it presumably still is; else 0 */
    bool attached;          /* it has become a raw stream to and from the terminal, */
    uint64_t seen;          /* and was sent the terminal's output up to here */
    struct buffer requests; /* frames that are arriving */
    struct buffer answers;  /* waiting to be sent, */
    size_t taken;           /* of which so many bytes were sent */
};

/* The sandbox: the shell, its terminal, the clients. A missing descriptor is -1. */
struct guest {
    /* fixed at the start */
    struct user user;
    char cwd[PATH_MAX];
    unsigned short columns, rows;
    char **environment;
    struct digest fresh_inner, fresh_home; /* inner_state() and home_contents() before anything ran */
    bool bare; /* shells read no startup file of the user's: one is to be made like another, see put_terminal_back */
    struct buffer rc; /* the shell's startup file, since commands may have removed or changed it */

    /* the shell, and our ends of its connections */
    pid_t shell;        /* 0: it ended, and another one is started at */
    int64_t restart_at; /* this time */
    enum shell_mode mode; /* see shell_mode.h */
    int64_t shell_started;
    int master;        /* its terminal */
    int wake;          /* tells it what to do next */
    int report;        /* its reports */
    int command;       /* a memory file with the command's text */
    unsigned sequence; /* how many commands it was given */
    unsigned report_number; /* of its last report, for which the next order is */
    bool loss_untold;    /* it ended between two calls: the next one must be told that its state is lost */
    bool proven;         /* a shell was ready once, so the image has one */
    bool unready;        /* the last one ended before it was ready */
    struct buffer incoming; /* the report that is arriving */
    struct buffer dump;     /* the shell's state after its last call, */
    bool dump_ready;        /* unless it has done something since */
    bool once_ready;        /* it was ready before, */
    struct digest fresh_kernel; /* and then these were its shell_attributes() */
    struct buffer typing; /* keys waiting for the terminal, */
    size_t typed;         /* of which it has accepted so many bytes */
    struct buffer terminal;  /* the last of what the terminal was sent */
    uint64_t terminal_count; /* bytes ever sent to it */

    /* output */
    int out_reader;         /* of the shell's current or next call */
    int drains[MAX_DRAINS]; /* outputs of jobs whose calls are over: read, so that they do not block, and dropped */
    int drain_count;

    /* clients */
    int listener;
    struct client clients[MAX_CLIENTS];
};
extern struct guest guest;

enum action_kind { NOTHING, RUN, EXEC, KEYS };

/* The current action: one at a time. Times are in microseconds of the monotonic clock. */
struct action {
    enum action_kind kind;
    int client; /* waits for the answer; -1 if it has gone */
    int64_t started, deadline;
    struct buffer pending; /* RUN: the command, kept in case it must be fed again. KEYS: what was not typed yet */

    int output; /* source of the output */
    struct capture capture;

    pid_t child; /* EXEC */
    int input;   /* EXEC: the child's stdin */
    struct buffer input_data;
    size_t input_at;

    int64_t enter_again; /* RUN: when to look whether the shell has left its prompt; 0: nothing was pressed */
    bool fed;            /* RUN: the shell was given the command */
    int given, not_begun; /* RUN: how often; and how often the shell failed to begin it */
    int fate;             /* RUN: what has become of it, according to the shell's last report */
    bool reported;       /* RUN: the shell has reported the command's end */
    bool shell_lost;     /* RUN: the shell ended, and its state with it */
    int64_t quiet_until; /* KEYS: done when the terminal has been silent until then */
    uint64_t shown;      /* KEYS: bytes that the terminal had been sent before the shell got the terminal */

    int64_t half;        /* when to check whether all processes sleep, */
    bool sampled;        /* whether that was done, */
    uint64_t sample;     /* and its result */
    bool blocked;        /* they slept from then to the timeout: waiting for something that does not come */
    int64_t sampled_at;  /* when that was done; late if we ourselves got no processor */
    bool timed_out;
    int64_t interrupted; /* timed out: time of the first SIGINT */
    int64_t settled;     /* RUN, timed out: when the shell has handled its last SIGINT */
    int exit_code;

    pid_t *before; /* processes alive at its start: not ours to kill */
    size_t before_count;
    unsigned long long before_ticks; /* when that was: a process with one of these ids that began later is another */
};
extern struct action action;

#endif
