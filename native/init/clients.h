/* Input from clients: frames, or keys for the terminal that they are attached to.
 *
 * If our standard input and output are a client, that is never dropped. At the end of its input nobody is connected for
 * now, and its input is checked again at intervals. What could not be written is kept for the next reader, so that
 * frames stay complete, and is lost only if writing fails.
 */
#ifndef TVSNAP_CLIENTS_H
#define TVSNAP_CLIENTS_H

#include <poll.h>

#include "basics.h"

struct client;

void serve_stdio(void);
int64_t rest_ends(void);
struct pollfd awaited(const struct client *c);
void serve_client(int i);

#endif
