/* The connections of clients: where they find us, and the answers on their way to them.
 *
 * An answer is written as far as the client takes it at once; the rest is kept until it takes more, and as long as it
 * has not taken all of it, nothing more is read from it. So nobody holds PID 1 up by not reading, and what is kept for
 * a client is never more than the answers to one request and to the action it waits for.
 */
#ifndef TVSNAP_CONNECTIONS_H
#define TVSNAP_CONNECTIONS_H

#include "basics.h"
#include "protocol.h"

struct client;

bool listen_here(void);
void keep_listening(void);
bool accept_client(void);
void drop_client(int i);
bool anyone_attached(void);
void never_wait(const struct client *c);
void answer(int client, enum answer_type type, const void *data, size_t length);
void answer_text(int client, enum answer_type type, const char *format, ...) __attribute__((format(printf, 3, 4)));
void answer_on(int i);

#endif
