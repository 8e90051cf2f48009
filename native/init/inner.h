/* State that only PID 1 can see: the terminal, and System V objects, which belong to no process. */
#ifndef TVSNAP_INNER_H
#define TVSNAP_INNER_H

#include "basics.h"
#include "hash.h"

struct digest inner_state(void); /* without HOME_DIR */

#endif
