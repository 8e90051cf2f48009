/* Actions by the clock: keys that have had their effect, a call's timeout and what follows it, a shell that is due. */
#ifndef TVSNAP_TIMING_H
#define TVSNAP_TIMING_H

void check_time(void);
int next_wakeup_ms(void);

#endif
