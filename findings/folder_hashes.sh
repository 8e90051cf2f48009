#!/usr/bin/env bash
# checksumdir 1.3.0, dirhash 0.5.0: one hash for a folder, to tell whether a task has changed it
#
# Guess: other names, contents or permissions are another hash, and a copy has the same.
# Behaviour: checksumdir leaves out names: a renamed and a moved file change nothing. With include_paths they count, but two files that swap
# their contents do not, as paths and contents are sorted apart, and a copy of the folder has another hash, as its own path counts. Both leave out
# permissions and empty folders; dirhash leaves out a link to nothing as well.
. "$(dirname "$0")/common.sh"
packages checksumdir==1.3.0 dirhash==0.5.0

cat >hashes.py <<'PYTHON'
import os, pathlib, shutil, sys
import checksumdir, dirhash
here = pathlib.Path("task")
def hashes(name):
    return checksumdir.dirhash(name, "sha256"), checksumdir.dirhash(name, "sha256", include_paths=True), dirhash.dirhash(name, "sha256")
def change(how):
    shutil.rmtree(here, ignore_errors=True)
    (here / "src").mkdir(parents=True)
    (here / "a").write_text("one")
    (here / "b").write_text("two")
    before = hashes(here)
    how()
    return " ".join("same" if old == new else "other" for old, new in zip(before, hashes(here)))
def swap():
    (here / "a").write_text("two")
    (here / "b").write_text("one")
for how in (
    lambda: (here / "a").rename(here / "src" / "a"), swap, lambda: (here / "a").chmod(0o755),
    lambda: (here / "empty").mkdir(), lambda: (here / "link").symlink_to("nothing"),
):
    print(change(how))
shutil.copytree(here, "copy", symlinks=True)
print(*("same" if old == new else "other" for old, new in zip(hashes("task"), hashes("copy"))))
PYTHON
python hashes.py >out
line=0
hashed() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
echo "by checksumdir, with include_paths, by dirhash:"
hashed "a file is moved" "same other other"
hashed "two files swap their contents" "same same other"
hashed "a file can be executed" "same same same"
hashed "an empty folder is added" "same same same"
hashed "a link to nothing is added" "other other same"
hashed "a copy" "same other same"
