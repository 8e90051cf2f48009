/* What clients send: frames, or keys for the terminal that they are attached to.
 *
 * One client is not like the others, if there is one: our standard input and output. It is never dropped. At the end of
 * its input nobody is there for now; its input is looked at again every so often. What could not be written stays for
 * whoever reads next, so that frames stay whole, and is lost only if writing fails.
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
