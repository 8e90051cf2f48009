/* The shell's reports: that a command is done, and its state when it waits for the next one. */
#ifndef TVSNAP_REPORTS_H
#define TVSNAP_REPORTS_H

void read_report(void);

#endif
