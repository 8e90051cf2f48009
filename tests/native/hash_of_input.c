/* Prints digests of what is read: by pieces, and at once. */
#include <stdio.h>
#include <unistd.h>

#include "hash.h"

int main(void) {
    static unsigned char data[1 << 20];
    size_t length = fread(data, 1, sizeof data, stdin);
    struct hash h = hash_begun();
    hash_take(&h, data, length / 3);
    hash_take(&h, data + length / 3, length - length / 3);
    struct digest pieces = hash_end(&h), many = digest_of_many(data, length);
    printf("%s %s\n", digest_text(&pieces), digest_text(&many));
    return 0;
}
