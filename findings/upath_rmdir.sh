#!/usr/bin/env bash
# universal-pathlib 0.3.10 (fsspec 2026.9.0): `rmdir`, and what else a path of pathlib does not do
#
# Guess: `rmdir` of a folder with files is an error, as by pathlib and for UPath("task").
# Behaviour: for UPath("file:///.../task") and memory:// it removes the folder with all that is in it. A folder is there once a file is, is made by `write_text` of
# a file in it, and is gone with its last file. `st_mtime` in memory is 0.
. "$(dirname "$0")/common.sh"
packages fsspec==2026.9.0 universal-pathlib==0.3.10

cat >paths.py <<'PYTHON'
import os
from upath import UPath
def full(path):
    (path / "notes").mkdir(parents=True)
    (path / "notes" / "answer").write_text("42")
    return path
for path in (UPath("task"), UPath("file://" + os.path.abspath("task")), UPath("memory://task")):
    if not path.exists():
        full(path)
    try:
        path.rmdir()
        print(type(path).__name__, path.exists())
    except OSError as error:
        print(type(path).__name__, error.strerror)
answer = UPath("memory://new/folder/answer")
answer.write_text("42")
there = answer.parent.is_dir()
print(there, answer.stat().st_mtime, end=" ")
answer.unlink()
print(answer.parent.exists(), UPath("memory://new").exists())
PYTHON
python paths.py >out
seen "rmdir of a path without a protocol" "$(sed -n 1p out)" "PosixUPath Directory not empty"
seen "rmdir of file://, and whether it is there then" "$(sed -n 2p out)" "FilePath False"
seen "rmdir of memory://, and whether it is there then" "$(sed -n 3p out)" "MemoryPath False"
seen "a file in new folders: the folder, the file's time; without the file: the folder, the one above" "$(sed -n 4p out)" "True 0 False False"
