#!/usr/bin/env bash
# Python's `zipfile` (3.11.7, of the system): what extractall restores
#
# Guess: it restores times and the permission to execute, for the archive has both.
# Behaviour: files are as if just written: their time is that of the extraction, and scripts cannot be executed.
. "$(dirname "$0")/common.sh"
python3 --version

echo 'echo hello' >run.sh
chmod 755 run.sh
touch -d '2020-01-01 10:00' run.sh
python3 - <<'END'
import zipfile
with zipfile.ZipFile("a.zip", "w") as archive:
    archive.write("run.sh")
with zipfile.ZipFile("a.zip") as archive:
    entry = archive.getinfo("run.sh")
    print("in the archive:", oct(entry.external_attr >> 16 & 0o777), entry.date_time)
    archive.extractall("out")
END
seen "mode that was added" "$(stat -c %a run.sh)" 755
seen "mode that comes out" "$(stat -c %a out/run.sh)" "$(printf %o $((0666 & ~$(umask))))"
seen "year that was added" "$(stat -c %y run.sh | cut -c -4)" 2020
seen "time that comes out is younger than the archive" "$([ out/run.sh -nt a.zip ] && echo yes)" yes
