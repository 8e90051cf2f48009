#include "hash.h"

#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are taken as they lie in memory"
#endif

enum { LANES = 8, STRIPE = LANES * HASH_BLOCK, ROUNDS = 10 };

static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const unsigned char order[ROUNDS][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

/* The rounds on words, or on vectors of words, one for each lane. */
#define TURN(x, n) ((x) >> (n) | (x) << (32 - (n)))
#define QUARTER(a, b, c, d, x, y)                      \
    do {                                               \
        a += b + (x), d ^= a, d = TURN_16(d);         \
        c += d, b ^= c, b = TURN(b, 12);               \
        a += b + (y), d ^= a, d = TURN_8(d);          \
        c += d, b ^= c, b = TURN(b, 7);                \
    } while (0)
#define MIX(v, m)                                                                       \
    _Pragma("GCC unroll 10") for (int r = 0; r < ROUNDS; r++) {                         \
        QUARTER(v[0], v[4], v[8], v[12], m[order[r][0]], m[order[r][1]]);               \
        QUARTER(v[1], v[5], v[9], v[13], m[order[r][2]], m[order[r][3]]);               \
        QUARTER(v[2], v[6], v[10], v[14], m[order[r][4]], m[order[r][5]]);              \
        QUARTER(v[3], v[7], v[11], v[15], m[order[r][6]], m[order[r][7]]);              \
        QUARTER(v[0], v[5], v[10], v[15], m[order[r][8]], m[order[r][9]]);              \
        QUARTER(v[1], v[6], v[11], v[12], m[order[r][10]], m[order[r][11]]);            \
        QUARTER(v[2], v[7], v[8], v[13], m[order[r][12]], m[order[r][13]]);             \
        QUARTER(v[3], v[4], v[9], v[14], m[order[r][14]], m[order[r][15]]);             \
    }

#define TURN_16(x) TURN(x, 16)
#define TURN_8(x) TURN(x, 8)
static void compress(struct hash *h, const unsigned char *block, bool last) {
    uint32_t v[16], m[16];
    memcpy(m, block, sizeof m);
    memcpy(v, h->state, sizeof h->state);
    memcpy(v + 8, start, sizeof start);
    v[12] ^= (uint32_t)h->count;
    v[13] ^= (uint32_t)(h->count >> 32);
    if (last) v[14] = ~v[14];
    if (last && h->last_node) v[15] = ~v[15];
    MIX(v, m)
    for (int i = 0; i < 8; i++) h->state[i] ^= v[i] ^ v[i + 8];
}

static struct hash begun(uint32_t shape, uint32_t number, uint32_t level, bool last_node) {
    struct hash h = {.last_node = last_node};
    memcpy(h.state, start, sizeof start);
    h.state[0] ^= shape | DIGEST_SIZE;
    h.state[2] ^= number;
    h.state[3] ^= level;
    return h;
}

struct hash hash_begun(void) { return begun(1 << 16 | 1 << 24, 0, 0, false); }

void hash_take(struct hash *h, const void *data, size_t length) {
    const unsigned char *at = data;
    while (length) {
        if (h->held == HASH_BLOCK) {
            h->count += HASH_BLOCK;
            compress(h, h->block, false);
            h->held = 0;
        }
        size_t n = HASH_BLOCK - h->held < length ? HASH_BLOCK - h->held : length;
        memcpy(h->block + h->held, at, n);
        h->held += n;
        at += n;
        length -= n;
    }
}

void hash_number(struct hash *h, uint64_t number) { hash_take(h, &number, sizeof number); }

/* Hashes data of any length such that it is distinguished from what follows. */
void hash_piece(struct hash *h, const void *data, size_t length) {
    hash_number(h, length);
    hash_take(h, data, length);
}

struct digest hash_end(const struct hash *h) {
    struct hash rest = *h;
    struct digest d;
    memset(rest.block + rest.held, 0, HASH_BLOCK - rest.held);
    rest.count += rest.held;
    compress(&rest, rest.block, true);
    memcpy(d.bytes, rest.state, sizeof d.bytes);
    return d;
}

/* Large data: block n goes to lane n % 8. */

#ifdef __x86_64__

typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));
typedef unsigned char bytes __attribute__((vector_size(4 * LANES)));

#define EIGHT(...) ((lanes){__VA_ARGS__})
#define EXCHANGE(a, b, low, high)                        \
    do {                                                 \
        lanes first = __builtin_shuffle(a, b, low);      \
        b = __builtin_shuffle(a, b, high), a = first;    \
    } while (0)

/* Transposes the words of eight blocks: those with the same index get into one vector. */
#define TURN_OVER(m)                                                                                         \
    do {                                                                                                     \
        for (int i = 0; i < LANES; i += 2)                                                                   \
            EXCHANGE(m[i], m[i + 1], EIGHT(0, 8, 2, 10, 4, 12, 6, 14), EIGHT(1, 9, 3, 11, 5, 13, 7, 15));    \
        for (int i = 0; i < LANES; i += i % 4 == 1 ? 3 : 1)                                                  \
            EXCHANGE(m[i], m[i + 2], EIGHT(0, 1, 8, 9, 4, 5, 12, 13), EIGHT(2, 3, 10, 11, 6, 7, 14, 15));    \
        for (int i = 0; i < LANES / 2; i++)                                                                  \
            EXCHANGE(m[i], m[i + 4], EIGHT(0, 1, 2, 3, 8, 9, 10, 11), EIGHT(4, 5, 6, 7, 12, 13, 14, 15));    \
    } while (0)

#undef TURN_16
#undef TURN_8
#define TURN_16(x) TURN_BYTES(x, 2, 3, 0, 1)
#define TURN_8(x) TURN_BYTES(x, 1, 2, 3, 0)
#define TURN_BYTES(x, a, b, c, d)                                                                                \
    (lanes)__builtin_shuffle((bytes)(x), (bytes){FOUR(0, a, b, c, d), FOUR(4, a, b, c, d), FOUR(8, a, b, c, d),  \
                                                 FOUR(12, a, b, c, d), FOUR(16, a, b, c, d),                     \
                                                 FOUR(20, a, b, c, d), FOUR(24, a, b, c, d), FOUR(28, a, b, c, d)})
#define FOUR(at, a, b, c, d) at + a, at + b, at + c, at + d

/* Hashes stripes, none of which is the last, into the lanes' states. */
__attribute__((target("avx2"))) static void take_stripes(lanes state[8], const unsigned char *at, size_t stripes) {
    for (uint64_t count = HASH_BLOCK; stripes--; at += STRIPE, count += HASH_BLOCK) {
        lanes v[16], m[16];
        for (int i = 0; i < LANES; i++) {
            memcpy(&m[i], at + i * HASH_BLOCK, sizeof *m);
            memcpy(&m[i + 8], at + i * HASH_BLOCK + sizeof *m, sizeof *m);
        }
        TURN_OVER(m);
        TURN_OVER((m + 8));
        for (int i = 0; i < 8; i++) v[i] = state[i], v[i + 8] = (lanes){0} + start[i];
        v[12] ^= (uint32_t)count;
        v[13] ^= (uint32_t)(count >> 32);
        MIX(v, m)
        for (int i = 0; i < 8; i++) state[i] ^= v[i] ^ v[i + 8];
    }
}

/* Hashes the beginning in all lanes at once; returns its length. The rest has at least one block for each lane. */
static size_t take_beginning(struct hash leaves[LANES], const unsigned char *at, size_t length) {
    size_t stripes = length > STRIPE ? (length - STRIPE) / STRIPE : 0;
    lanes state[8];
    if (!stripes || !__builtin_cpu_supports("avx2")) return 0;
    for (int i = 0; i < LANES; i++)
        for (int word = 0; word < 8; word++) state[word][i] = leaves[i].state[word];
    take_stripes(state, at, stripes);
    for (int i = 0; i < LANES; i++) {
        for (int word = 0; word < 8; word++) leaves[i].state[word] = state[word][i];
        leaves[i].count = stripes * HASH_BLOCK;
    }
    return stripes * STRIPE;
}

#else

static size_t take_beginning(struct hash leaves[LANES], const unsigned char *at, size_t length) {
    return (void)leaves, (void)at, (void)length, 0;
}

#endif

struct digest digest_of_many(const void *data, size_t length) {
    enum { SHAPE = LANES << 16 | 2 << 24, INNER = DIGEST_SIZE << 24, ROOT = 1 << 16 };
    const unsigned char *at = data, *end = at + length;
    struct hash leaves[LANES], root = begun(SHAPE, 0, ROOT | INNER, true);
    for (unsigned i = 0; i < LANES; i++) leaves[i] = begun(SHAPE, i, INNER, i == LANES - 1);
    at += take_beginning(leaves, at, length);
    for (unsigned i = 0; at < end; i++) {
        size_t n = end - at < HASH_BLOCK ? (size_t)(end - at) : HASH_BLOCK;
        hash_take(&leaves[i % LANES], at, n);
        at += n;
    }
    for (int i = 0; i < LANES; i++) {
        struct digest leaf = hash_end(&leaves[i]);
        hash_take(&root, leaf.bytes, sizeof leaf.bytes);
    }
    return hash_end(&root);
}

/* Returns false if there is no memory. */
bool add_digest(struct digests *all, const struct digest *one) {
    if (all->count == all->room) {
        size_t room = all->room ? all->room * 2 : 64;
        struct digest *items = realloc(all->items, room * sizeof *items);
        if (!items) return false;
        all->items = items;
        all->room = room;
    }
    all->items[all->count++] = *one;
    return true;
}

static int in_order(const void *a, const void *b) { return memcmp(a, b, DIGEST_SIZE); }

/* Returns one digest for all of them, and clears the list. */
struct digest digest_of_all(struct digests *all) {
    struct hash h = hash_begun();
    if (all->count) qsort(all->items, all->count, sizeof *all->items, in_order);
    hash_take(&h, all->items, all->count * sizeof *all->items);
    all->count = 0;
    return hash_end(&h);
}

bool same_digest(const struct digest *a, const struct digest *b) { return memcmp(a->bytes, b->bytes, DIGEST_SIZE) == 0; }

void write_digest(char to[DIGEST_TEXT], const struct digest *d) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < DIGEST_SIZE; i++) {
        *to++ = digits[d->bytes[i] >> 4];
        *to++ = digits[d->bytes[i] & 15];
    }
}

const char *digest_text(const struct digest *d) {
    static char texts[4][DIGEST_TEXT + 1];
    static unsigned next;
    char *text = texts[next++ % 4];
    write_digest(text, d);
    return text;
}
