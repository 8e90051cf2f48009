/* Sets modification times to the nanosecond, which archives of files lose. */
#ifndef TVSNAP_AMEND_H
#define TVSNAP_AMEND_H

#include "basics.h"

int amend(void);

#endif
