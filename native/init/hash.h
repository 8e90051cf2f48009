/* FNV-1a: a number for bytes, one piece after the other. */
#ifndef TVSNAP_HASH_H
#define TVSNAP_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START 14695981039346656037u /* what `mix` is given first; process_report.py knows it */

uint64_t mix(uint64_t hash, const void *data, size_t length);

#endif
