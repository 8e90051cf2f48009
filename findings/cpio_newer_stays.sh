#!/usr/bin/env bash
# GNU cpio 2.13 (of Debian 12): a folder that is saved, changed, and put back
#
# Guess: the files have the contents and times of the archive again, as by tar, or the status is an error.
# Behaviour: each file that is newer than that of the archive, or as old, stays as it is, with a message and status 0: the change is
# still there. Files that are missing come back, with the time of now, so that they stay the next time. With -u and -m all is put back.
. "$(dirname "$0")/common.sh"
command -v cpio >/dev/null || debian cpio
needs cpio
cpio --version | sed -n 1p

mkdir folder
echo first >folder/a
echo first >folder/b
touch -d 2026-01-01 folder/a folder/b
find folder | cpio -o --quiet >archive
echo second >folder/a
rm folder/b
restore() { cpio -id --quiet "$@" <archive 2>said && echo "status 0" || echo "status $?"; }
seen "put back" "$(restore), $(cat folder/a folder/b | xargs)" "status 0, second first"
seen "what it says" "$(grep -c 'newer or same age' said)" 1
seen "b is newer than in the archive" "$([ "$(date -r folder/b +%s)" -gt "$(date -d 2026-01-02 +%s)" ] && echo yes)" yes
echo third >folder/b
seen "put back again" "$(restore), $(cat folder/a folder/b | xargs)" "status 0, second third"
seen "with -u and -m" "$(restore -um), $(cat folder/a folder/b | xargs), $(date -r folder/a +%F)" "status 0, first first, 2026-01-01"
