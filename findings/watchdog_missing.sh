#!/usr/bin/env bash
# watchdog 7.1.0 on Linux: the changes of a folder that it sees, with all folders below
#
# Guess: an event for each file that appears, changes or disappears.
# Behaviour: of a folder that is moved elsewhere only the folder is deleted, not its files; a folder that is moved here has them
# created. A write through a mapping, or to a folder behind a symbolic link, is no change. What is written through another
# name of a file is a change of that name alone, and of nothing, if that name is outside.
. "$(dirname "$0")/common.sh"
packages watchdog==7.1.0

cat >watch.py <<'PYTHON'
import mmap
import os
import time
from watchdog.events import FileSystemEventHandler
from watchdog.observers import Observer
events = []
class Handler(FileSystemEventHandler):
    def on_any_event(self, event):
        if event.event_type in ("created", "modified", "deleted", "moved") and not event.is_directory:
            events.append(f"{event.event_type} {os.path.relpath(event.src_path, 'here')}")
for folder in ("here/inner", "here/gone", "there", "linked"):
    os.makedirs(folder)
for file in ("here/inner/a", "here/gone/b", "there/c", "linked/d", "outside"):
    with open(file, "w") as opened:
        opened.write("first")
os.symlink("../linked", "here/link")
os.link("outside", "here/name")
observer = Observer()
observer.schedule(Handler(), "here", recursive=True)
observer.start()
def until(name):
    deadline = time.monotonic() + 60
    while not any(event.endswith(name) for event in events) and time.monotonic() < deadline:
        time.sleep(0.05)
def write(path):
    with open(path, "a") as opened:
        opened.write("second")
def written_by_mapping():
    with open("here/inner/a", "r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapping:
        mapping[0:1] = b"F"
        mapping.flush()
for number, change in enumerate((
    lambda: os.rename("here/gone", "gone"), lambda: os.rename("there", "here/there"), written_by_mapping,
    lambda: write("here/link/d"), lambda: write("outside"), lambda: write("here/inner/a"),
)):
    change()
    write(f"here/mark-{number}")
    until(f"mark-{number}")
    print(*(sorted({event for event in events if "mark" not in event}) or ["nothing"]))
    events.clear()
observer.stop()
observer.join()
PYTHON
python watch.py >out
seen "a folder is moved elsewhere" "$(sed -n 1p out)" "nothing"
seen "a folder is moved here" "$(sed -n 2p out)" "created there/c"
seen "written by a mapping" "$(sed -n 3p out)" "nothing"
seen "behind a symbolic link" "$(sed -n 4p out)" "nothing"
seen "by another name" "$(sed -n 5p out)" "nothing"
seen "written as usual" "$(sed -n 6p out)" "modified inner/a"
