/* Several commands in parallel, or one with separate standard error; see together.c. */
#ifndef TVSNAP_TOGETHER_H
#define TVSNAP_TOGETHER_H

int together(void);

#endif
