/* Handles each request, and answers it. See protocol.h. */
#ifndef TVSNAP_REQUESTS_H
#define TVSNAP_REQUESTS_H

#include "frames.h"

void handle_request(int client, const struct frame *frame);

#endif
