#!/usr/bin/env bash
# overlayfs of Linux 6.18.44 (of the system; its option `redirect_dir` is off): `os.rename` of a folder of the image
#
# Guess: it works, as for each folder on one file system: its device number is that of the folder that it stays in.
# Behaviour: EXDEV, "Invalid cross-device link", for a folder of a lower layer. One that was made in the container is renamed, as
# is a file of the image. `mv` and `shutil.move` take the error for another file system, and copy all files: these have new inodes.
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || { echo "needs root, for a mount" >&2; exit 2; }
uname -sr
echo "redirect_dir: $(cat /sys/module/overlay/parameters/redirect_dir)"

mkdir -p lower/package lower/moved scratch merged
echo text | tee lower/package/file lower/moved/file >lower/file
mount -t tmpfs none scratch # of one file system with upper
mkdir scratch/upper scratch/work
at_end+=("umount scratch")
mount -t overlay none -o "lowerdir=lower,upperdir=scratch/upper,workdir=scratch/work,redirect_dir=off" merged
at_end=("umount merged" "${at_end[@]}")
mkdir merged/made
rename() { python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "merged/$1" "merged/$1.old" 2>&1 | sed -n 's/.*\(\[Errno [0-9]*\]\).*/\1/p'; }
seen "device numbers of the two folders" "$([ "$(stat -c %d merged)" = "$(stat -c %d merged/package)" ] && echo equal)" equal
seen "a folder of the image" "$(rename package)" "[Errno 18]"
seen "a folder that was made here" "$(rename made)" ""
seen "a file of the image" "$(rename file)" ""
inode=$(stat -c %i merged/moved/file)
mv merged/moved merged/moved.old
seen "a file in what mv has moved: is it the same inode" "$([ "$(stat -c %i merged/moved.old/file)" = "$inode" ] && echo yes || echo no)" no
