#!/usr/bin/env bash
# erofs-utils 1.5 and squashfs-tools-ng 1.2.0, as in Debian 12: an image of a folder, and the folder of the image
#
# Guess: each comes back with its permissions, times and links, as by `unsquashfs`, or by `tar`.
# Behaviour: `fsck.erofs --extract` keeps permissions and times; a file of two names is two files, and extended attributes are gone. `rdsquashfs -u`
# keeps none of them: all files have 644, folders 755, and the time of now, with status 0. `gensquashfs` makes all times 1970, and two files of
# one with two names, where `tar2sqfs` of the same folder keeps both.
. "$(dirname "$0")/common.sh"
needs tar
for package in erofs-utils libsquashfs1 squashfs-tools-ng; do debian "$package"; done
libraries=$(echo "$work"/debian/usr/lib/*-linux-gnu)
export LD_LIBRARY_PATH=$libraries
fsck.erofs -V
gensquashfs --version | sed -n 1p

mkdir -p task/bin
echo 'echo hello' >task/bin/run
chmod 750 task/bin/run
ln task/bin/run task/bin/again
chmod 700 task/bin
python3 -c 'import os; os.setxattr("task/bin/run", "user.note", b"x")'
touch -d '2020-01-01 00:00 UTC' task/bin/run task/bin
about() { # permissions, links, year and attributes of run; permissions of bin
    (cd "$1/bin" && TZ=UTC stat -c '%a %h %y' run | sed 's/\(....\)-.*/\1/' | tr '\n' ' '
    python3 -c 'import os; print(len(os.listxattr("run")), end=" ")'
    stat -c %a .)
}
year=$(TZ=UTC date +%Y)
seen "the folder: permissions, names, year and attributes of a file; permissions of its folder" "$(about task)" "750 2 2020 1 700"
mkfs.erofs task.erofs task >/dev/null 2>&1
mkdir erofs squashfs
fsck.erofs --extract=erofs task.erofs >/dev/null
seen "by mkfs.erofs and fsck.erofs --extract" "$(about erofs)" "750 1 2020 0 700"
tar -c --xattrs --xattrs-include='user.*' -C task . | tar2sqfs -q task.sqfs
seen "by tar and tar2sqfs, as the list of sqfs2tar has it" "$(sqfs2tar task.sqfs | TZ=UTC tar -tv | sed 's, [0-9]*/.* \(....\)-..-.. ..:.. , \1 ,' | xargs)" \
    "drwx------ 2020 bin/ -rwxr-x--- 2020 bin/again hrwxr-x--- 2020 bin/run link to bin/again"
rdsquashfs -q -u / -p squashfs task.sqfs && status=0 || status=$?
seen "by tar2sqfs and rdsquashfs -u, with status $status" "$(about squashfs)" "644 1 $year 0 755"
gensquashfs -q -D task other.sqfs
seen "by gensquashfs, as the list has it" "$(sqfs2tar other.sqfs | TZ=UTC tar -tv | sed 's, [0-9]*/.* \(....\)-..-.. ..:.. , \1 ,' | xargs)" \
    "drwx------ 1970 bin/ -rwxr-x--- 1970 bin/again -rwxr-x--- 1970 bin/run"
