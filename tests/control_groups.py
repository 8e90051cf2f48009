"""Looks for control groups on a machine where other tests make and remove theirs meanwhile."""

from __future__ import annotations

import fnmatch
import os


def control_groups(pattern: str) -> list[str]:
    """Returns the paths of all control groups that match a shell pattern, in which `*` stands for slashes too."""
    walked = os.walk("/sys/fs/cgroup")  # passes over what goes while it walks, as Path.glob does not
    return [path for path, _, _ in walked if fnmatch.fnmatchcase(path, pattern)]
