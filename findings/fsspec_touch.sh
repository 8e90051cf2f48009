#!/usr/bin/env bash
# fsspec 2026.9.0: `touch`, a folder copied or uploaded twice, links, a failed `with`, and a cached file
#
# Guess: `touch` leaves the contents, as in a shell and by pathlib; the second copy is as the first; what fails within `with` is not stored; a cached file is one version.
# Behaviour: `touch` empties the file. The second `put` or `copy` of a folder makes it once more within the first. `put` and `copy` lose permissions,
# and a link to a folder is an empty folder. A file in memory whose `with` has raised has its first half, and is there before it is closed.
# Behind `filecache` a changed file has its new size, and its old contents.
. "$(dirname "$0")/common.sh"
packages fsspec==2026.9.0

cat >files.py <<'PYTHON'
import os
import fsspec
local, memory = fsspec.filesystem("file"), fsspec.filesystem("memory")
def write(name, text, mode=0o644):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "w") as file:
        file.write(text)
    os.chmod(name, mode)
write("answer", "42")
local.touch("answer")
print(os.path.getsize("answer"))
write("task/bin/run.sh", "true", 0o755)
os.symlink("bin", "task/link")
for store in (local.put, local.copy):
    target = store.__name__
    for _ in range(2):
        store("task", target, recursive=True)
    print(target, [os.path.relpath(path) for path in local.find(target)], oct(os.stat(f"{target}/bin/run.sh").st_mode)[-3:],
          os.path.islink(f"{target}/link"), os.path.isdir(f"{target}/link") and os.listdir(f"{target}/link"))
try:
    with memory.open("/answer", "wb") as file:
        file.write(b"half")
        print(memory.exists("/answer"), end=" ")
        raise RuntimeError
except RuntimeError:
    print(memory.cat_file("/answer"))
path = os.path.abspath("rows")
cached = fsspec.filesystem("filecache", target_protocol="file", cache_storage="cache")
write("rows", "one")
cached.cat_file(path)
write("rows", "three")
print(cached.cat_file(path), cached.size(path))
PYTHON
python files.py >out
seen "bytes of a file behind touch" "$(sed -n 1p out)" 0
seen "a folder by put, twice: files, permissions, link to a folder" "$(sed -n 2p out)" "put ['put/bin/run.sh', 'put/task/bin/run.sh'] 644 False []"
seen "a folder by copy, twice" "$(sed -n 3p out)" "copy ['copy/bin/run.sh', 'copy/task/bin/run.sh'] 644 False []"
seen "in memory: there before it is closed, and behind an error" "$(sed -n 4p out)" "True b'half'"
seen "filecache: contents and size of a changed file" "$(sed -n 5p out)" "b'one' 5"
