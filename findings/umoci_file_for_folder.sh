#!/usr/bin/env bash
# umoci 0.4.7, as in Debian 12, with GNU tar: the layer of a folder that became a file
#
# Guess: the layer has the file, which takes the place of what was there, as of all that was below it.
# Behaviour: it has the file, and below it a mark for each file of the folder that is gone, as if it still were a folder: `task`, then `task/.wh.notes`.
# umoci unpacks it; GNU tar ends with an error at the mark. A folder that was removed and made anew has one mark for each file as well, and is not opaque.
. "$(dirname "$0")/common.sh"
needs tar
[ "$(id -u)" = 0 ] || { echo "umoci unpacks as root here: this finding cannot be shown here" >&2; exit 2; }
debian umoci
umoci --version

quiet() { "$@" >said 2>&1 || { cat said >&2; exit 2; }; }
quiet umoci init --layout image
quiet umoci new --image image:empty
quiet umoci unpack --image image:empty first
mkdir first/rootfs/task first/rootfs/logs
touch first/rootfs/task/notes first/rootfs/logs/one first/rootfs/logs/two
quiet umoci repack --image image:folders first
mkdir before
cp image/blobs/sha256/* before
quiet umoci unpack --image image:folders second
rm -r second/rootfs/task second/rootfs/logs
echo "done" >second/rootfs/task
mkdir second/rootfs/logs
touch -d 2020-01-01 second/rootfs/logs # umoci compares seconds
quiet umoci repack --image image:file second
for blob in image/blobs/sha256/*; do
    [ ! -e "before/${blob##*/}" ] && tar -tzf "$blob" >names 2>/dev/null || continue
    seen "the layer" "$(grep -v '^\.$' names | sort | xargs)" "logs/ logs/.wh.one logs/.wh.two task task/.wh.notes"
    mkdir -p out
    tar -xzf "$blob" -C out 2>errors && status=0 || status=$?
    seen "GNU tar" "$status $(sed -n 's/^tar: \(.*Cannot open\)/\1/p' errors)" "2 task/.wh.notes: Cannot open: Not a directory"
done
quiet umoci unpack --image image:file third
seen "by umoci" "$(cd third/rootfs && find . -mindepth 1 | sort | xargs)" "./logs ./task"
