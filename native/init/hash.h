/* Digests of bytes, of which nobody can find two with the same: BLAKE2 (RFC 7693), without a key.
 *
 * What is hashed is what a sandbox's commands make, and they know all of it. So the number that is compared must be one
 * that cannot be steered. A key would not do instead: part of what is hashed is looked at inside (a container's census,
 * PID 1), where root could read it, and digests are compared over a sandbox's whole life and kept in snapshots, so that no
 * key may be for one look only. A hash that needs no secret is sound wherever it is computed.
 */
#ifndef TVSNAP_HASH_H
#define TVSNAP_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_SIZE = 32, DIGEST_TEXT = 2 * DIGEST_SIZE, HASH_BLOCK = 64 };

struct digest {
    unsigned char bytes[DIGEST_SIZE];
};

/* BLAKE2s of what it has taken so far, one piece after the other. */
struct hash {
    uint32_t state[8];
    uint64_t count; /* bytes that are in `state` */
    size_t held;    /* bytes in `block`: a full one waits for more, since the last is treated otherwise */
    unsigned char block[HASH_BLOCK];
    bool last_node; /* of a tree; see digest_of_many */
};

struct hash hash_begun(void);
void hash_take(struct hash *h, const void *data, size_t length);
void hash_number(struct hash *h, uint64_t number);
void hash_piece(struct hash *h, const void *data, size_t length);
struct digest hash_end(const struct hash *h);

/* BLAKE2sp, which has eight lanes: for much at once, of which it takes about 2 GB a second with AVX2, 0.4 without. */
struct digest digest_of_many(const void *data, size_t length);

/* Digests that come in any order. Their sum would not do: of many, some can be found whose sum is any. */
struct digests {
    struct digest *items;
    size_t count, room;
};

bool add_digest(struct digests *all, const struct digest *one);
struct digest digest_of_all(struct digests *all);

bool same_digest(const struct digest *a, const struct digest *b);
void write_digest(char to[DIGEST_TEXT], const struct digest *d); /* in hexadecimal, without what ends it */
const char *digest_text(const struct digest *d); /* in hexadecimal; one of the last four that were asked for */

#endif
