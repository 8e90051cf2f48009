/* A client's connection from outside: a bridge from our standard input and output to PID 1. */
#ifndef TVSNAP_BRIDGE_H
#define TVSNAP_BRIDGE_H

#include "basics.h"

int bridge(void);

#endif
