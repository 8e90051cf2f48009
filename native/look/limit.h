/* A limit on the processor time of the calling thread. */
#ifndef TVSNAP_LOOK_LIMIT_H
#define TVSNAP_LOOK_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

int64_t limit_after(double seconds);
bool is_over(int64_t limit);

#endif
