/* Types, the two global structures and the functions that the files of PID 1 share.
 *
 * PID 1 is one thread around one poll: `guest` is what lives as long as the sandbox, `action` the one run, exec or
 * typing of keys that may be under way. Both are in every snapshot, so they hold little and nothing from outside.
 */
#ifndef TVSNAP_GUEST_H
#define TVSNAP_GUEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HOME_DIR "/run/tvsnap"
#define CONTROL_PATH HOME_DIR "/control" /* the socket that clients connect to */
#define OUTPUT_PATH HOME_DIR "/out"      /* the FIFO that the shell opens for a command's output */
#define RC_PATH HOME_DIR "/rc"           /* the shell's startup file */
#define INIT_PATH HOME_DIR "/init"       /* this program */

enum { MAX_CLIENTS = 8, MAX_DRAINS = 64, TYPING_LIMIT = 65536 };

/* What a request may ask for at most: ten years, and bytes of output. */
#define MAX_TIME_US (10LL * 366 * 86400 * 1000000)
#define MAX_OUTPUT (1LL << 30)

/* basics.c */

/* Bytes in memory of their own; all zero is an empty one. */
struct buffer {
    char *data;
    size_t length, room;
};

_Noreturn void die(const char *what);
void append(struct buffer *b, const void *data, size_t length);
void release(struct buffer *b);
int64_t now_us(void);
void set_nonblocking(int fd);
bool write_all(int fd, const void *data, size_t length);
bool read_all(int fd, struct buffer *b);
void use_fd(int fd, int wanted);

/* capture.c */

struct capture {
    struct buffer head, tail; /* tail: a ring once it is full, whose oldest byte is at tail_at */
    size_t limit, tail_at;    /* bytes */
    uint64_t total;           /* bytes seen, kept or not */
};

void capture_start(struct capture *c, size_t limit);
void capture_add(struct capture *c, const char *data, size_t length);

/* users.c */

struct user {
    uid_t uid;
    gid_t gid;
    gid_t groups[64];
    int group_count;
    char name[64], home[256];
};

bool find_user(const char *wanted, struct user *u);
bool become(const struct user *u);

/* What PID 1 is and does. */

enum shell_mode {
    SHELL_STARTING, /* rc is being read */
    SHELL_IDLE,     /* waits for a command from us */
    SHELL_RUNNING,  /* executes one */
    SHELL_PROMPT,   /* was handed to the terminal: shows its prompt, or runs what was typed there */
};

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
    uint64_t fresh_inner; /* inner_state() before anything ran */
    bool bare; /* shells read no startup file of the user's: one is to be made like another, see put_terminal_back */
    struct buffer rc; /* the shell's startup file: commands may have removed or changed it */

    /* the shell, and our ends of what joins us to it */
    pid_t shell;        /* 0: it ended, and another is started at */
    int64_t restart_at; /* this time */
    enum shell_mode mode;
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
    uint64_t fresh_kernel;  /* kernel_attributes() when it was ready first; 0 before */
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
};
extern struct action action;

/* action.c */

void begin_action(enum action_kind kind, int client, int64_t timeout_us, size_t limit);
void leave_to_drain(int fd);
void read_drains(const struct pollfd *polled, int count);
bool drain_output(void);
void finish_action(void);
void forget_action(void);

/* processes.c */

size_t list_processes(pid_t **out);
ssize_t read_proc(pid_t pid, const char *name, char *out, size_t room);
void remember_processes(void);
bool group_lives(pid_t group);
size_t signal_new(int signal);
void kill_new(void);
uint64_t sleeping_time(void);

/* shell.c */

void read_rc(void);
bool make_output_fifo(void);
void renew_output(void);
bool start_shell(void);
void want_shell(void);
void restart_shell(void);
bool shell_has_pending(int signal);
void await_dying_shell(void);
void give_shell_up(void);
void feed_command(void);
void to_prompt(void);
void read_report(void);
void type_keys(const void *keys, size_t length);
void type_on(void);
void read_terminal(void);
void put_terminal_back(const void *shown, size_t length, uint64_t count, unsigned sequence);
void shell_ended(int status);
bool shell_has_terminal(void);
void foreground_name(char *out, size_t room);

/* exec.c */

/* Part of a request. */
struct field {
    const char *data;
    size_t length;
};

void become_ordinary(void);
void start_exec(int client, struct field *f, int count);
void feed_input(void);

/* clients.c */

void make_home(void);
bool clear_path(const char *path);
bool listen_here(void);
void keep_listening(void);
void serve_stdio(void);
bool accept_client(void);
void drop_client(int i);
bool anyone_attached(void);
int64_t rest_ends(void);
struct pollfd awaited(const struct client *c);
void serve_client(int i);
void answer(int client, char type, const void *data, size_t length);
void answer_text(int client, char type, const char *format, ...) __attribute__((format(printf, 3, 4)));
int bridge(void);

/* requests.c */

#define HASH_START 14695981039346656037u /* what `mix` is given first */

void handle_request(int i, const char *body, size_t length);
uint64_t mix(uint64_t hash, const void *data, size_t length);
uint64_t inner_state(void); /* without HOME_DIR */
char *text_of(struct field f);
int64_t number_of(struct field f, int64_t most);

/* waiting.c */

bool anything_waits(struct field shell_files, struct field processes);

/* confine.c */

void protect_proc(void);
void drop_capabilities(void);
void set_resource_limits(void);
bool number_processes(pid_t last);
void filter_system_calls(void);

/* Programs of their own, run inside a sandbox or beside it; they return their exit status. */

/* files.c */

int get_file(const char *path, const char *limit_text);
int put_file(const char *path);
int ask_service(const char *path);

/* walk.c */

int walk_main(char **arguments);

/* census.c */

int census(pid_t shell, char **serving);

/* home.c */

uint64_t mix_home(uint64_t hash, bool with_host);

/* holds.c */

struct stat;
enum holder { OTHER, SERVING, SHELL };
uint64_t kernel_attributes(pid_t pid, bool all);
uint64_t terminal_state(uint64_t hash, int fd);
bool is_stopped(int slave);
bool is_terminal(const struct stat *st);
bool look_as_user_of(pid_t pid);
void look_as_root(void);
void print_holds(pid_t pid, enum holder kind);
int holds_main(char **pids);

/* amend.c */

int amend(void);

#endif
