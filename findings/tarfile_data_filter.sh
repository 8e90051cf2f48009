#!/usr/bin/env bash
# Python 3.11.7: `tarfile`, and its filter "data", which newer versions use by default
#
# Guess: a folder that holds nothing dangerous comes back as by `tar -xp`; what `addfile` is given is in the archive.
# Behaviour: with "data" a file that was read-only can be written, one that all could write has 755 in place of 777, one without the owner's right to
# read can be read; folders have the permissions of the umask, also one that was closed, and owners are dropped. Times stay. With a named pipe it stops
# there with an error, and what was behind it in the archive is missing. A file with holes is written with all its zeros.
# `addfile` of a new TarInfo with bytes adds an empty file, of 1970, as its size is 0.
. "$(dirname "$0")/common.sh"

umask 022
mkdir -p task/locked
cat >make.py <<'PYTHON'
import io, os, sys, tarfile
print(sys.version.split()[0])
for name, mode in (("open", 0o777), ("readonly", 0o444), ("unreadable", 0o200)):
    with open(f"task/{name}", "w") as file:
        file.write(name)
    os.chmod(f"task/{name}", mode)
    os.utime(f"task/{name}", (10**9, 10**9))
os.chmod("task/locked", 0o500)
def modes(folder):
    return [(name, oct(os.stat(f"{folder}/{name}").st_mode)[-3:]) for name in sorted(os.listdir(folder))]
def copied(folder, *names, **options):
    with tarfile.open(f"{folder}.tar", "w") as archive:
        for name in names:
            archive.add(name)
    with tarfile.open(f"{folder}.tar") as archive:
        archive.extractall(folder, **options)
copied("trusted", "task", filter="fully_trusted")
print(modes("trusted/task"))
copied("data", "task", filter="data")
print(modes("data/task"))
print({os.stat(f"data/task/{name}").st_mtime for name in ("open", "readonly", "unreadable")})
os.mkfifo("pipe")
open("behind", "w").close()
try:
    copied("pipes", "task/open", "pipe", "behind", filter="data")
except tarfile.FilterError as error:
    print(type(error).__name__, sorted(os.listdir("pipes")))
with open("holes", "w") as file:
    file.truncate(10**7)
copied("sparse", "holes", filter="data")
print(os.stat("holes").st_blocks * 512 < 10**5, os.path.getsize("sparse.tar") > 10**7, os.stat("sparse/holes").st_blocks * 512 < 10**5)
with tarfile.open("bytes.tar", "w") as archive:
    archive.addfile(tarfile.TarInfo("answer"), io.BytesIO(b"42"))
print(tarfile.open("bytes.tar").getmember("answer").size)
PYTHON
python3 make.py >out
sed -n 1p out
seen "the folder" "$(sed -n 2p out)" "[('locked', '500'), ('open', '777'), ('readonly', '444'), ('unreadable', '200')]"
seen 'with the filter "data"' "$(sed -n 3p out)" "[('locked', '755'), ('open', '755'), ('readonly', '644'), ('unreadable', '600')]"
seen "times of its files" "$(sed -n 4p out)" "{1000000000.0}"
seen "a file, a pipe and a file" "$(sed -n 5p out)" "SpecialFileError ['task']"
seen "a file with holes: whether it is small on the disk, the archive has all zeros, and the copy is small on the disk" "$(sed -n 6p out)" "True True False"
seen "size of an added file of two bytes" "$(sed -n 7p out)" "0"
