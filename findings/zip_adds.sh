#!/usr/bin/env bash
# Info-ZIP 3.0 (of the system): `zip -r results.zip folder`, once more after a file was removed and another one put back
#
# Guess: the archive has what the folder has now, as that of `tar czf` and of Python's `shutil.make_archive`.
# Behaviour: it is an update of the archive that is there: removed files stay in it. With -u, a file that was put back with its
# old time (by `cp -p`, or a restored snapshot) keeps the contents of the newer one. `-FS` makes it what the folder is.
. "$(dirname "$0")/common.sh"
needs zip unzip
zip -v | sed -n 2p

names() { unzip -Z1 results.zip | sort | xargs; }
mkdir folder
echo old >folder/a
touch -d '1 hour ago' folder/a
cp -p folder/a saved
echo changed >folder/a
echo one >folder/b
zip -qr results.zip folder
rm folder/b
cp -p saved folder/a
zip -qru results.zip folder || true
seen "with -u: names" "$(names)" "folder/ folder/a folder/b"
seen "with -u: a, in the folder and in the archive" "$(cat folder/a) $(unzip -p results.zip folder/a)" "old changed"
zip -qr results.zip folder
seen "without an option" "$(names) $(unzip -p results.zip folder/a)" "folder/ folder/a folder/b old"
zip -qr -FS results.zip folder
seen "with -FS" "$(names)" "folder/ folder/a"
