"""Wraps the kernel's inotify: own and borrowed instances, and their lines in /proc (inotify(7), proc(5))."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tvsnap.host.libc import checked, closing, libc
from tvsnap.sandboxes.kernel.procfs import lines

LINK = "anon_inode:inotify"
"""The link of an instance in /proc/PID/fd."""
_DELETED_ITSELF, _IGNORED = 0x400, 0x8000
_ONLY_AT_ITS_NAME, _ONCE = 0x0400_0000, 0x8000_0000  # IN_EXCL_UNLINK, IN_ONESHOT
_NEW_ONLY = 0x1000_0000  # IN_MASK_CREATE
_ANY_WATCH = 0x2000  # IN_UNMOUNT: always set by the kernel; a mask must not be empty
_SET_NEXT = 0x40044900  # INOTIFY_IOC_SETNEXTWD
_EVENT = struct.Struct("=iIII")
_WATCH = re.compile(r"inotify wd:([0-9a-f]+) ino:([0-9a-f]+) sdev:([0-9a-f]+) mask:([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Mark:
    """A watch, as the kernel reports it.

    Attributes:
        number: its watch descriptor.
        inode, device: of the watched file; the device in the kernel's encoding, which differs from that of stat().
        mask: the events to report, and flags.
    """

    number: int
    inode: int
    device: int
    mask: int


def marks(path: str) -> Iterator[Mark]:
    """Yields the watches in an instance's file in /proc/PID/fdinfo, newest first; raises OSError if it is gone."""
    for line in lines(path):
        if match := _WATCH.match(line):
            yield Mark(*(int(number, 16) for number in match.groups()))


def marks_of(instance: int) -> Iterator[Mark]:
    """Yields the watches of an instance that this process has open, newest first."""
    return marks(f"/proc/self/fdinfo/{instance}")


@contextlib.contextmanager
def own_instance() -> Iterator[int]:
    """Yields a new instance."""
    with closing(checked(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), "inotify")) as instance:
        yield instance


def watch(instance: int, file: int, mask: int = _DELETED_ITSELF) -> int:
    """Adds a watch of an open file, possibly opened with O_PATH; returns the watch descriptor."""
    return checked(libc.inotify_add_watch(instance, _path(file), ctypes.c_uint32(mask)), "a watch of inotify")


def watch_anew(instance: int, file: int, number: int, mask: int) -> None:
    """Adds a watch with this number and mask to an instance that does not watch the file yet.

    Raises OSError if that is impossible.
    """
    set_next(instance, number)
    if watch(instance, file, mask | _NEW_ONLY | _ANY_WATCH) != number:
        raise OSError(errno.EEXIST, "a watch has another number")


def watches(instance: int, file: int) -> bool:
    """Whether an instance, in which no event waits, watches an open file; leaves the instance unchanged."""
    try:
        number = watch(instance, file, _NEW_ONLY | _ANY_WATCH)
    except FileExistsError:
        return True
    _forget(instance, number)
    return False


def next_number(instance: int) -> int:
    """Returns the number that the instance's next watch will have; before and after, no event waits there."""
    with closing(os.memfd_create("watched", os.MFD_CLOEXEC)) as file:
        number = watch(instance, file)
        _forget(instance, number)
    return number


def set_next(instance: int, number: int) -> None:
    """Sets the number that the instance's next watch will have if that number is free."""
    fcntl.ioctl(instance, _SET_NEXT, number)


def unread(instance: int) -> int:
    """Returns how many bytes of events wait to be read."""
    return int(struct.unpack("i", fcntl.ioctl(instance, termios.FIONREAD, bytes(4)))[0])


@cache
def tells_all() -> bool:
    """Whether this kernel reports all bits of a watch's mask (since 5.19)."""
    mask = _DELETED_ITSELF | _ONLY_AT_ITS_NAME | _ONCE
    with own_instance() as own, closing(os.memfd_create("watched", os.MFD_CLOEXEC)) as file:
        watch(own, file, mask)
        return [mark.mask for mark in marks_of(own)] == [mask]


def _forget(instance: int, number: int) -> None:
    """Removes the newest watch and the event that reports this, and makes its number the next one again."""
    checked(libc.inotify_rm_watch(instance, number), "a watch of inotify")
    set_next(instance, number)
    if unread(instance) != _EVENT.size or os.read(instance, _EVENT.size) != _EVENT.pack(number, _IGNORED, 0, 0):
        raise OSError(errno.EBUSY, "it is told of what happens while it is looked at")


def _path(file: int) -> bytes:
    return b"/proc/self/fd/%d" % file
