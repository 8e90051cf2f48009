/* PID 1's directory: creates it, and tells whether its contents are as at first. */
#ifndef TVSNAP_HOME_H
#define TVSNAP_HOME_H

#include "basics.h"
#include "hash.h"
#include "protocol.h"

#define OUTPUT_PATH HOME_DIR "/out" /* the FIFO that the shell opens for a command's output */
#define RC_PATH HOME_DIR "/rc"      /* the shell's startup file */

void make_home(void);
bool clear_path(const char *path);
struct digest home_contents(void);

#endif
