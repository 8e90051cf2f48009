/* File tools, and requests to services; run as children of PID 1 so that they have a user's rights and cannot block
 * it. */
#ifndef TVSNAP_FILES_H
#define TVSNAP_FILES_H

#include "basics.h"

int get_file(const char *path, const char *limit_text);
int put_file(const char *path);
int ask_service(const char *path);

#endif
