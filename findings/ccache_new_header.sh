#!/usr/bin/env bash
# ccache 4.7.5: a header that is new in a folder of -I, before the one from which it was taken until now
#
# Guess: the object is compiled anew, as the key is made of all that the compiler reads; so does the compiler without the cache.
# Behaviour: the cache looks whether those files have changed which were read the last time; that another one would be read
# now is not seen: the old object is linked, with status 0. The same holds for `__has_include`. With CCACHE_NODIRECT=1, with
# which the preprocessor is run each time, the result is right.
. "$(dirname "$0")/common.sh"
needs gcc
command -v ccache >/dev/null || { debian libhiredis0.14; debian ccache; }
export LD_LIBRARY_PATH=$work/debian/usr/lib/x86_64-linux-gnu CCACHE_DIR=$work/cache CCACHE_CONFIGPATH=/dev/null
ccache --version | sed -n 1p

mkdir -p ours theirs
echo '#define LEVEL 1' >theirs/config.h
cat >main.c <<'END'
#include <stdio.h>
#include "config.h"
#if __has_include("extra.h")
#include "extra.h"
#else
#define EXTRA 0
#endif
int main(void) { printf("%d %d\n", LEVEL, EXTRA); }
END
touch -d '1 minute ago' main.c theirs/config.h # it does not trust a time of this second
result() { ccache gcc -Iours -Itheirs -c main.c -o main.o && gcc main.o -o main && ./main; }
seen "first" "$(result)" "1 0"
echo '#define LEVEL 2' >ours/config.h
echo '#define EXTRA 1' >ours/extra.h
seen "with new headers" "$(result)" "1 0"
seen "with CCACHE_NODIRECT=1" "$(CCACHE_NODIRECT=1 result)" "2 1"
