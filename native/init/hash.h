/* Collision-resistant digests of bytes: BLAKE2 (RFC 7693), without a key.
 *
 * The hashed data is made by a sandbox's commands, which know all of it. So digests must resist deliberate collisions.
 * A key would not help: part of the hashing is done inside (a container's census, PID 1), where root could read the
 * key, and digests are compared over a sandbox's whole life and kept in snapshots, so that a key could not be used for
 * one look only. A hash that needs no secret is secure wherever it is computed.
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

/* The BLAKE2s state after the data so far. */
struct hash {
    uint32_t state[8];
    uint64_t count; /* bytes that are in `state` */
    size_t held;    /* bytes in `block`: a full one waits for more data, since the last one is treated differently */
    unsigned char block[HASH_BLOCK];
    bool last_node; /* of a tree; see digest_of_many */
};

struct hash hash_begun(void);
void hash_take(struct hash *h, const void *data, size_t length);
void hash_number(struct hash *h, uint64_t number);
void hash_piece(struct hash *h, const void *data, size_t length);
struct digest hash_end(const struct hash *h);

/* BLAKE2sp, which has eight lanes: for much data at once, at about 2 GB/s with AVX2, 0.4 GB/s without. */
struct digest digest_of_many(const void *data, size_t length);

/* Digests in any order. Their sum would be unsafe: among many digests, some can be found that have any given sum. */
struct digests {
    struct digest *items;
    size_t count, room;
};

bool add_digest(struct digests *all, const struct digest *one);
struct digest digest_of_all(struct digests *all);

bool same_digest(const struct digest *a, const struct digest *b);
void write_digest(char to[DIGEST_TEXT], const struct digest *d); /* in hexadecimal, without a terminator */
const char *digest_text(const struct digest *d); /* in hexadecimal; the last four results are valid */

#endif
