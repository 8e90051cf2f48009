#!/usr/bin/env bash
# squashfs-tools 4.5.1 (of the system): `mksquashfs` of a folder into a file that is there, as a second snapshot of it
#
# Guess: the file is made anew, with what the folder has now, as by `tar c`.
# Behaviour: what is in the file stays, and the folder's contents are added to it: a changed file `a` is there as `a_1`, beside the
# old `a`, and a removed file is there. The status is 0, and options of compression are ignored. `-noappend` makes it anew.
. "$(dirname "$0")/common.sh"
command -v mksquashfs >/dev/null || debian squashfs-tools
mksquashfs -version | sed -n 1p || true
export HOME=$work # for a file that it makes while it adds

make_image() { mksquashfs folder image -quiet -no-progress "$@" >log 2>&1; echo $?; }
contents() { unsquashfs -l image | sed -n 's#^squashfs-root/##p' | xargs; }
mkdir folder
echo first >folder/a
echo kept >folder/b
seen "first: status" "$(make_image)" 0
echo second >folder/a
rm folder/b
seen "second: status" "$(make_image)" 0
seen "what is in it" "$(contents)" "a a_1 b"
seen "its a, and its a_1" "$(unsquashfs -cat image a a_1 | xargs)" "first second"
seen "with -noappend" "$(make_image -noappend) $(contents)" "0 a"
