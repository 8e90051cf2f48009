#!/usr/bin/env bash
# pyfakefs 6.3.2: tests of files, in its file system and in a real one
#
# Guess: the same results, or an error that says what is not there.
# Behaviour: a folder's time stays when a file comes into it, and a file with a hole takes all its blocks. A name may have 300
# characters, or one of 0; run/.. is there if run is a file. The folder of the process can be removed, and `getcwd` still names it. A file
# renamed onto a folder is "Directory not empty", and no IsADirectoryError. `os.pwrite` says that the descriptor is bad.
. "$(dirname "$0")/common.sh"
packages pyfakefs==6.3.2

cat >files.py <<'PYTHON'
import os
import sys
import tempfile
from pyfakefs.fake_filesystem_unittest import Patcher
def result(act):
    try:
        return act()
    except (OSError, ValueError) as error:
        return f"{type(error).__name__} {getattr(error, 'errno', '')}".strip()
def write(name, text="x"):
    with open(name, "w") as file:
        file.write(text)
def behind_file():
    os.utime("folder", (1, 1))
    write("folder/new")
    return os.stat("folder").st_mtime > 1
def hole():
    with open("hole", "wb") as file:
        file.seek(1 << 20)
        file.write(b"x")
    return os.stat("hole").st_blocks < 100
def named(name):
    write(name)
    return "written"
def removed():
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir(os.path.abspath("."))
    return os.path.basename(os.getcwd())
def pwrite():
    descriptor = os.open("run", os.O_RDWR)
    return os.pwrite(descriptor, b"y", 0)
def all_of(folder):
    os.chdir(folder)
    os.mkdir("folder")
    write("run")
    return [
        result(act) for act in (
            behind_file, hole,
            lambda: named("n" * 300), lambda: named("a\0b"), lambda: os.path.exists("run/.."), lambda: os.rename("run", "folder"), pwrite, removed,
        )
    ]
with Patcher():
    os.makedirs("/task")
    fake = all_of("/task")
real = all_of(tempfile.mkdtemp(dir=sys.argv[1]))
for both in zip(real, fake):
    print(*both, sep=", ")
PYTHON
python files.py "$work" >out
line=0
both() { line=$((line + 1)); seen "$1: a real one, pyfakefs" "$(sed -n ${line}p out)" "$2"; }
both "a folder is newer behind a new file" "True, False"
both "a hole takes no room" "True, False"
both "a name of 300 characters" "OSError 36, written"
both "a name with the character 0" "ValueError, written"
both "run/.. of a file run" "False, True"
both "a file renamed onto a folder" "IsADirectoryError 21, OSError 39"
both "os.pwrite" "1, OSError 9"
both "getcwd in a folder that was removed" "FileNotFoundError 2, gone"
