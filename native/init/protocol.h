/* The protocol between PID 1 of a sandbox and its only client, tvsnap/guest/protocol.py: this file is its definition.
 *
 * Clients connect to CONTROL_PATH, a stream socket; if PID 1's standard input is a pipe or a socket, descriptors 0 and
 * 1 are one more client. Either side sends frames: a length of LENGTH_BYTES, little-endian, and that many bytes, the
 * first of which is a letter for the type. A request continues with fields, each preceded by a length of LENGTH_BYTES;
 * an answer with its payload, in which numbers are decimal text separated by blanks. Times are microseconds.
 *
 * A snapshot contains a PID 1 that continues as it was compiled. So a change below by which either side no longer
 * understands an older version of the other must increase PROTOCOL_VERSION (tests/native/test_protocol.py knows what
 * belongs to which), and must ensure that states with an older PID 1 are not restored.
 */
#ifndef TVSNAP_PROTOCOL_H
#define TVSNAP_PROTOCOL_H

#define PROTOCOL_VERSION 3

#define HOME_DIR "/run/tvsnap"
#define CONTROL_PATH HOME_DIR "/control" /* the socket that clients connect to */
#define INIT_PATH HOME_DIR "/init"       /* this program */

enum request_type {          /* fields                                                answers, in this order */
    REQUEST_RUN = 'r',       /* timeout limit command: in the shell                   OUTPUT* END | BUSY | ERROR */
    REQUEST_EXECUTE = 'e',   /* timeout limit user cwd stdin argc argv... (name value)...
                              *                                                       OUTPUT* END | NO_USER | ERROR */
    REQUEST_CANCEL = 'c',    /* ends the client's RUN or EXECUTE as its timeout would     none */
    REQUEST_KEYS = 'k',      /* deadline quiet keys: typed, until the terminal is quiet   END */
    REQUEST_TERMINAL = 't',  /*                                                       SIZE TERMINAL */
    REQUEST_STATE = 's',     /* the shell's                                           STATE | LATER | NOT_IDLE */
    REQUEST_INFO = 'i',      /* the current state                                     INFO */
    REQUEST_NUMBER = 'n',    /* number: new process ids start after it                none */
    REQUEST_WAITS = 'w',     /* files processes: decimal numbers separated by blanks  WAITS */
    REQUEST_PUT_BACK = 'p',  /* shown count commands: another terminal's contents     PUT_BACK */
    REQUEST_ATTACH = 'a',    /* columns rows                                          ATTACHED, then raw bytes | ERROR */
    REQUEST_QUIT = 'q',      /*                                                       end of file */
};

enum answer_type {
    ANSWER_OUTPUT = 'O',     /* bytes of output, in at most MOST_OUTPUT_PARTS answers */
    ANSWER_END = 'X',        /* status (-1: none) duration bytes timed-out blocked shell-lost */
    ANSWER_BUSY = 'B',       /* the command line of the terminal's foreground program */
    ANSWER_NO_USER = 'U',    /* the image has no such user */
    ANSWER_ERROR = 'E',      /* why the request was refused, as text */
    ANSWER_SIZE = 'W',       /* columns rows */
    ANSWER_TERMINAL = 'T',   /* the last bytes that the terminal was sent */
    ANSWER_STATE = 'D',      /* the idle shell's report of its state */
    ANSWER_LATER = 'L',      /* it is not idle yet */
    ANSWER_NOT_IDLE = 'N',   /* it is not idle, and will not become so by itself */
    ANSWER_INFO = 'I',       /* the shell's pid, its mode, the action, inner state, commands, whether inner and our
                              * directory are as at the start, the kernel's state of the shell, whether that is as at
                              * its start except for limits */
    ANSWER_WAITS = 'H',      /* 1: data waits for them, or that is unknown; else 0 */
    ANSWER_PUT_BACK = 'P',
    ANSWER_ATTACHED = 'A',
};

/* The shell's mode in INFO. */
enum shell_mode {
    SHELL_GONE = 0,     /* it ended, or never started: another one is due */
    SHELL_IDLE = 1,     /* waits for a command from us */
    SHELL_STARTING = 2, /* its startup file is being read, or its wait was interrupted */
    SHELL_RUNNING = 3,  /* executes a command */
    SHELL_PROMPT = 4,   /* uses the terminal: shows its prompt, or runs commands typed there */
    SHELL_MODES,
};

enum {
    LENGTH_BYTES = 4,
    MAX_REQUEST = 256 * 1024 * 1024,     /* bytes of a request, the letter included */
    MAX_FIELDS = 4096,                   /* of a request */
    EXECUTE_FIXED_FIELDS = 6,            /* of REQUEST_EXECUTE, before its arguments */
    MOST_OUTPUT_PARTS = 3,               /* the head of an output, and the two parts of a ring buffer */
    MAX_SHELL_STATE = 8 * 1024 * 1024,   /* bytes; a shell that reports more is killed */
    MAX_ANSWER_TEXT = 1024,              /* bytes of an answer as text or numbers */
};

/* Maximum values in a request: ten years, and bytes of output. Larger numbers are reduced to these. */
#define MAX_TIME_US (10LL * 366 * 86400 * 1000000)
#define MAX_OUTPUT (1LL << 30)

#endif
