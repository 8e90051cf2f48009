/* The state of PID 1.
 *
 * It is one thread around one poll: `guest` is what lives as long as the sandbox, `action` the one run, exec or
 * typing of keys that may be under way. Both are in every snapshot, so they hold little and nothing from outside.
 */
#ifndef TVSNAP_GUEST_H
#define TVSNAP_GUEST_H

#include "capture.h"
#include "hash.h"
#include "protocol.h"
#include "users.h"

enum { MAX_CLIENTS = 8, MAX_DRAINS = 64 };

struct client {
    int input, output;      /* -1: there is none; the same for a socket */
    bool lasting;           /* our standard input and output: never dropped */
    int64_t ended;          /* lasting: when it was found at its end, where it still is as far as we know; else 0 */
    bool attached;          /* a raw stream to and from the terminal by now */
    struct buffer requests; /* frames that are arriving */
    struct buffer answers;  /* on their way to it, */
    size_t taken;           /* of which it has taken so many bytes */
};

/* The sandbox: the shell, its terminal, the clients. A descriptor that is not there is -1. */
struct guest {
    /* fixed at the start */
    struct user user;
    char cwd[PATH_MAX];
    unsigned short columns, rows;
    char **environment;
    struct digest fresh_inner, fresh_home; /* inner_state() and home_contents() before anything ran */
    bool bare; /* shells read no startup file of the user's: one is to be made like another, see put_terminal_back */
    struct buffer rc; /* the shell's startup file: commands may have removed or changed it */

    /* the shell, and our ends of what joins us to it */
    pid_t shell;        /* 0: it ended, and another is started at */
    int64_t restart_at; /* this time */
    enum shell_mode mode; /* see shell_mode.h */
    int64_t shell_started;
    int master;        /* its terminal */
    int wake;          /* tells it what to do next */
    int report;        /* what it says of itself */
    int command;       /* a memory file: the command's text */
    unsigned sequence; /* of the command that it was given last: its reports name it */
    bool loss_untold;    /* it ended between two calls: the next one is told that its state is lost */
    bool proven;         /* a shell was ready once: the image has one */
    bool unready;        /* the last one ended before it was */
    struct buffer incoming; /* the report that is arriving */
    struct buffer dump;     /* the shell's state after its last call, */
    bool dump_ready;        /* unless it has done something since */
    bool once_ready;        /* it was ready before, */
    struct digest fresh_kernel; /* and these were its shell_attributes() when it was so first */
    struct buffer typing; /* keys on their way to the terminal, */
    size_t typed;         /* of which it has taken so many */
    struct buffer terminal;  /* the last of what the terminal was sent */
    uint64_t terminal_count; /* bytes ever sent to it */

    /* output */
    int out_reader;         /* of the shell's present or next call */
    int drains[MAX_DRAINS]; /* output of jobs whose calls are over: read, so that they are not held up, and dropped */
    int drain_count;

    /* clients */
    int listener;
    struct client clients[MAX_CLIENTS];
};
extern struct guest guest;

enum action_kind { NOTHING, RUN, EXEC, KEYS };

/* The action under way: one at a time. Times are in microseconds of the monotonic clock. */
struct action {
    enum action_kind kind;
    int client; /* who waits for the answer; -1 if it has gone */
    int64_t started, deadline;
    struct buffer pending; /* RUN: the command, kept in case it is to be fed again. KEYS: what is not yet typed */

    int output; /* where the output comes from */
    struct capture capture;

    pid_t child; /* EXEC */
    int input;   /* EXEC: the child's stdin */
    struct buffer input_data;
    size_t input_at;

    bool fed;            /* RUN: the shell has been given the command */
    int attempts;        /* RUN: how often */
    bool unread;         /* RUN: by its last report, the shell has not read yet that there is one */
    bool reported;       /* RUN: the shell has said that it is done with it */
    bool shell_lost;     /* RUN: the shell ended, and its state with it */
    int64_t quiet_until; /* KEYS: over when the terminal has been silent until then */
    uint64_t shown;      /* KEYS: bytes that the terminal had been sent before the shell was handed to it */

    int64_t half;        /* when to look whether all of it sleeps, */
    bool sampled;        /* which has been done */
    uint64_t sample;     /* and found this */
    bool blocked;        /* it slept from then to its timeout: it waits for something that does not come */
    int64_t sampled_at;  /* when it was looked at for that; late where we ourselves got no processor */
    bool timed_out;
    int64_t interrupted; /* timed out: when it was first sent SIGINT */
    int64_t settled;     /* RUN, timed out: when the shell has taken its last SIGINT */
    int exit_code;

    pid_t *before; /* processes alive at its start: not ours to kill */
    size_t before_count;
    unsigned long long before_ticks; /* when that was: who has one of those numbers and began later is another */
};
extern struct action action;

#endif
