/* The connections of clients: accepting them, and sending answers.
 *
 * As much of an answer is sent as the client accepts at once; the rest is kept, and until it was sent, nothing more is
 * read from this client. So no client can block PID 1 by not reading, and what is kept for a client is never more than
 * the answers to one request and to the action that it waits for.
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
