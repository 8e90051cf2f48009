#include "hash.h"

uint64_t mix(uint64_t hash, const void *data, size_t length) {
    const unsigned char *at = data;
    while (length--) hash = (hash ^ *at++) * 1099511628211u;
    return hash;
}
