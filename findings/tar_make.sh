#!/usr/bin/env bash
# GNU tar 1.34 with GNU make 4.3 (of the system): a build after a copy by tar
#
# Guess: a copy by `tar c | tar x` is as up to date as its original, for tar keeps times.
# Behaviour: tar's default format keeps whole seconds, make compares nanoseconds: a source that was saved in the same
# second as the object was built, and later, needs a build in the original and none in the copy. With
# --format=posix the copy needs one, too.
. "$(dirname "$0")/common.sh"
needs make tar
tar --version | sed -n 1p
make --version | sed -n 1p

mkdir original copy posix
printf 'a.o: a.c\n\tcp a.c a.o\n' >original/Makefile
touch -d '2020-01-01 10:00:00.2' original/a.o
touch -d '2020-01-01 10:00:00.7' original/a.c
tar -C original -cf - . | tar -C copy -xf -
tar -C original --format=posix -cf - . | tar -C posix -xf -
state() { make -q -C "$1" a.o && echo "up to date" || echo "to be built"; }
seen original "$(state original)" "to be built"
seen copy "$(state copy)" "up to date"
seen "copy by --format=posix" "$(state posix)" "to be built"
