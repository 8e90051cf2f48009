/* Programs that run apart from the shell: their start and their input. */
#ifndef TVSNAP_EXEC_H
#define TVSNAP_EXEC_H

#include "frames.h"

void start_exec(int client, const struct request *r);
void feed_input(void);

#endif
