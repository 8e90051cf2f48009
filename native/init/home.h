/* PID 1's directory: its making, and what calls have done to it, which no look at the files tells of. */
#ifndef TVSNAP_HOME_H
#define TVSNAP_HOME_H

#include "basics.h"
#include "protocol.h"

#define OUTPUT_PATH HOME_DIR "/out" /* the FIFO that the shell opens for a command's output */
#define RC_PATH HOME_DIR "/rc"      /* the shell's startup file */

void make_home(void);
bool clear_path(const char *path);
uint64_t mix_home(uint64_t hash, bool with_host);

#endif
