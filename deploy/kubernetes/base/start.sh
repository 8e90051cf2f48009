#!/bin/sh
# Prepares a container that is not privileged for sandboxes, and becomes tvsnap. Nothing of the node changes: it undoes, in
# the container's own mount namespace, what the container runtime did to it.
set -eu
python=$(dirname "$(readlink -f "$(command -v tvsnap)")")/python

# The runtime covers parts of /proc and makes others read-only. While it does, the kernel lets no sandbox mount a /proc, and
# tvsnap cannot choose process ids, nor ports that need no rights. Sandboxes get their own masks.
awk '$2 ~ "^/proc/" { print $2 }' /proc/self/mounts | sort -r | while read -r place; do umount "$place"; done

# Control groups of sandboxes are made below the container's own, so that the pod's limits hold for them, too.
awk '$3 ~ "^cgroup2?$" { print $2 }' /proc/self/mounts | while read -r place; do mount -o remount,bind,rw "$place"; done
# In version 2, a group has either processes or groups with limits: the server gets one of its own. In the host's namespace
# of control groups (the overlay any-disk), sandboxes are in groups beside those of pods.
if [ -f /sys/fs/cgroup/cgroup.controllers ] && grep -qx '0::/' /proc/self/cgroup; then
    mkdir -p /sys/fs/cgroup/server
    while read -r pid; do
        echo "$pid" >/sys/fs/cgroup/server/cgroup.procs || true # a process that has ended
    done </sys/fs/cgroup/cgroup.procs
fi

# What `criu check` looks for. Nothing uses it.
[ -e /dev/net/tun ] || { mkdir -p /dev/net && mknod /dev/net/tun c 10 200; } || true

# Limits on the disk of each sandbox. On a btrfs in a file, tvsnap enables them itself.
"$python" - "$TVSNAP_HOME" <<'PYTHON'
import sys
from pathlib import Path

from tvsnap.sandboxes.local.storage.quota import Quotas, on_btrfs

home = Path(sys.argv[1])
if on_btrfs(home) and not (quotas := Quotas(home)).enabled:
    try:
        quotas.enable()
    except OSError as error:
        print(f"sandboxes have no limits on disk: {error.strerror} (Linux 6.7 or newer has simple quotas)", file=sys.stderr)
PYTHON

exec tvsnap "$@"
