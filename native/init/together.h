/* Several commands side by side, or one whose standard error is kept apart; see together.c. */
#ifndef TVSNAP_TOGETHER_H
#define TVSNAP_TOGETHER_H

int together(void);

#endif
