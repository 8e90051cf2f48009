#!/usr/bin/env bash
# restic 0.14.0, as in Debian 12: `restic backup task`, in the folder that it is in
#
# Guess: the snapshot has the whole path, which its list shows, so that the folder comes back where it was, by `--target /`; a pattern for what is left
# out is as the folder was named, or a whole path; `--keep-last 1` keeps one snapshot.
# Behaviour: the snapshot has `/task` alone, as the folder was named, and the list shows the whole path: by `--target /` it comes back elsewhere. Two
# snapshots whose paths are listed as one can so have other trees. A pattern is for the whole path on the disk, so that `/task/build` leaves out nothing,
# though the snapshot names it so. `--keep-last 1` keeps one for each path.
. "$(dirname "$0")/common.sh"
command -v restic >/dev/null || debian restic
restic version
export RESTIC_REPOSITORY=$work/repository RESTIC_PASSWORD=none XDG_CACHE_HOME=$work/cache HOME=$work
restic init --quiet
mkdir -p place/task/build place/other
cd place
echo 1 >task/a
echo x >task/build/b
restic backup --quiet task
restic backup --quiet "$PWD/task"
listed() { restic snapshots --json | python3 -c 'import json, sys; print(*(path.replace(sys.argv[1], "...") for each in json.load(sys.stdin) for path in each["paths"]))' "$work"; }
count() { restic snapshots --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))'; }
id() { restic snapshots --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[int(sys.argv[1])]["short_id"])' "$1"; }
first=$(id 0) second=$(id 1)
seen "paths of the two snapshots, in the list" "$(listed)" ".../place/task .../place/task"
seen "the first one's tree" "$(restic ls --quiet "$first" | xargs)" "/task /task/a /task/build /task/build/b"
mkdir "$work/root" # in place of /
restic restore --quiet "$first" --target "$work/root"
seen "the first one, restored" "$(cd "$work/root" && find . -name a)" "./task/a"
rm -r "$work/root"
restic restore --quiet "$second" --target "$work/root"
seen "the second one, restored" "$(cd "$work/root" && find . -name a | sed "s,$work,/...,")" "./.../place/task/a"
builds() {
    restic backup --quiet --exclude "$1" task
    restic ls --quiet latest | sed -n 's#^/task/build$#there#p'
}
seen "build, without build" "$(builds build)" ""
seen "build, without task/build" "$(builds task/build)" ""
seen "build, without /task/build" "$(builds /task/build)" "there"
seen "build, without its whole path" "$(builds "$PWD/task/build")" ""
cd task
restic backup --quiet .
restic forget --quiet --keep-last 1
echo 1 >../other/a
cd ../other
restic backup --quiet .
restic forget --quiet --keep-last 1
seen "snapshots that --keep-last 1 keeps" "$(count)" "2"
