/* OpenSSL mixes addresses and the time into the kernel's randomness, so it gets our own generator instead. */
#include "preload.h"

static int bytes(unsigned char *buffer, int length) {
    if (length > 0) draw(buffer, (size_t)length);
    return 1;
}

static int seeded(const void *data, int length) {
    (void)data, (void)length;
    return 1;
}

static int added(const void *data, int length, double entropy) {
    (void)data, (void)length, (void)entropy;
    return 1;
}

static int status(void) { return 1; }

/* RAND_METHOD of OpenSSL 1.1 and 3. */
static const struct {
    int (*seed)(const void *, int);
    int (*bytes)(unsigned char *, int);
    void (*cleanup)(void);
    int (*add)(const void *, int, double);
    int (*pseudorand)(unsigned char *, int);
    int (*status)(void);
} method = {seeded, bytes, NULL, added, bytes, status};

/* For programs that are linked with it; programs that load it later call the functions below, but OpenSSL does not. */
__attribute__((constructor)) static void give_generator(void) {
    int (*set_method)(const void *) = seed_is_set() ? next_symbol("RAND_set_rand_method") : NULL;
    if (set_method) set_method(&method);
}

EXPORT(int, RAND_bytes, unsigned char *buffer, int length) {
    return seed_is_set() ? bytes(buffer, length) : NEXT(RAND_bytes)(buffer, length);
}

EXPORT(int, RAND_priv_bytes, unsigned char *buffer, int length) {
    return seed_is_set() ? bytes(buffer, length) : NEXT(RAND_priv_bytes)(buffer, length);
}
