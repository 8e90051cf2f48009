#!/usr/bin/env bash
# fsspec 2026.9.0, universal-pathlib 0.3.10: paths with brackets, as app/[id]/page.js and run[1]
#
# Guess: a path names its file; patterns are for `glob`.
# Behaviour: paths are patterns for `cat`, `rm` and `get`. Beside a file run1, `cat("run[1]")` has its contents, and as a dict. In the file system in memory
# `rm("run[1]")` removes run1 and leaves run[1], and so does `UPath.unlink`; on the local disk `rm` removes the right one, and `get` of app/[id] finds nothing.
# `cat_file`, `rm_file`, `open` and `info` take the path as it is.
. "$(dirname "$0")/common.sh"
packages fsspec==2026.9.0 universal-pathlib==0.3.10

cat >brackets.py <<'PYTHON'
import os
import fsspec
from upath import UPath
memory, local = fsspec.filesystem("memory"), fsspec.filesystem("file")
files = {"/run[1]": b"that one", "/run1": b"another"}
memory.pipe(files)
print(memory.cat("/run[1]"), memory.cat_file("/run[1]"), memory.info("/run[1]")["size"])
memory.rm("/run[1]")
print(memory.find("/"))
memory.pipe(files)
UPath("memory://run[1]").unlink()
print(memory.find("/"))
memory.pipe(files)
memory.rm_file("/run[1]")
print(memory.find("/"))
os.makedirs("app/[id]")
for name, text in (("app/[id]/page.js", "page"), ("run[1]", "that one"), ("run1", "another")):
    with open(name, "w") as file:
        file.write(text)
print([*local.cat("run[1]").values()], local.cat_file("run[1]"))
local.rm("run[1]")
print(os.path.exists("run[1]"), os.path.exists("run1"))
try:
    local.get("app/[id]", "copy", recursive=True)
except FileNotFoundError as error:
    print("FileNotFoundError", error)
PYTHON
python brackets.py >out
seen "in memory: cat, cat_file, and the size by info, of run[1]" "$(sed -n 1p out)" "{'/run1': b'another'} b'that one' 8"
seen "in memory, behind rm of run[1]" "$(sed -n 2p out)" "['/run[1]']"
seen "in memory, behind unlink of run[1]" "$(sed -n 3p out)" "['/run[1]']"
seen "in memory, behind rm_file of run[1]" "$(sed -n 4p out)" "['/run1']"
seen "on the disk: cat and cat_file of run[1]" "$(sed -n 5p out)" "[b'another'] b'that one'"
seen "on the disk, behind rm of run[1]: whether it and run1 are there" "$(sed -n 6p out)" "False True"
seen "on the disk: get of app/[id]" "$(sed -n 7p out)" "FileNotFoundError []"
