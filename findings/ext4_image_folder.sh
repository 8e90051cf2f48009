#!/usr/bin/env bash
# e2fsprogs 1.47.0, of the system: a folder as an image by `mkfs.ext4 -d`, and out of it by `debugfs -R "rdump / out"`
#
# Guess: the folder comes back, but for the owner; what fails has a status that is not 0.
# Behaviour: a file with two names is two files, a pipe is missing, attributes are, a hole is written out, fractions of seconds are cut off by
# `mkfs.ext4`, and links have the time of now. debugfs ends with 0 for a file that is not there, and writes no file over one that is.
. "$(dirname "$0")/common.sh"
PATH=$PATH:/sbin:/usr/sbin
needs mkfs.ext4 debugfs
debugfs -V 2>&1 | sed -n 1p
mkdir task out
echo one >task/a
ln task/a task/b
ln -s a task/link
mkfifo task/pipe
truncate -s 4M task/hole
python3 -c 'import os; os.setxattr("task/a", "user.run", b"7")'
touch -d @1000000000.5 task/a
touch -h -d @1000000000 task/link
truncate -s 16M image
mkfs.ext4 -q -d task image
debugfs -R "rdump / out" image 2>errors && status=0 || status=$?
rmdir out/lost+found
shown() {
    (
        cd "$1"
        echo "a $(stat -c '%h %.1Y' a), link $(stat -c %Y link | grep -c 1000000000), blocks $(stat -c %b hole), $(echo *)," \
            "attributes $(python3 -c 'import os; print(len(os.listxattr("a")))')"
    )
}
seen "the folder: names and time of a, the time of the link, blocks, files, attributes" "$(shown task)" \
    "a 2 1000000000.5, link 1, blocks 0, a b hole link pipe, attributes 1"
seen "out of the image, and the status" "$(shown out) $status" "a 1 1000000000.0, link 0, blocks 8192, a b hole link, attributes 0 0"
status() { debugfs "$@" >/dev/null 2>&1 && echo 0 || echo $?; }
echo two >two
seen "status for a file that is not there, and for a second text of a" "$(status -R "cat /nothing" image) $(status -w -R "write two a" image)" "0 0"
seen "a" "$(debugfs -R "cat a" image 2>/dev/null)" "one"
