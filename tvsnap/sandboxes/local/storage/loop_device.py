"""Loop devices: block devices backed by a file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path

from tvsnap.host.libc import closing
from tvsnap.model.errors import MachineLacks

_SET_FD, _SET_STATUS64, _GET_STATUS64, _SET_DIRECT_IO = 0x4C00, 0x4C04, 0x4C05, 0x4C08
_CTL_GET_FREE = 0x4C82
_AUTOCLEAR = 4
_TRIES = 50


def attach(image: Path) -> tuple[int, str]:
    """Returns an open loop device for `image`, and its path; if one is in use already, that one.

    The device is freed when its last user is gone.
    """
    wanted = image.stat()
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        device = f"/dev/{backing.parts[3]}"
        with contextlib.suppress(OSError):
            if backing.read_text().strip() != str(image.resolve()):
                continue
            descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            status = bytearray(232)
            with contextlib.suppress(OSError):
                fcntl.ioctl(descriptor, _GET_STATUS64, status)
                # struct loop_info64 begins with the device and the inode of the file behind it.
                if struct.unpack_from("QQ", status)[1] == wanted.st_ino:
                    return descriptor, device
            os.close(descriptor)
    with open(image, "r+b", buffering=0) as backing_file, closing(os.open("/dev/loop-control", os.O_RDWR)) as control:
        for _ in range(_TRIES):
            device = f"/dev/loop{fcntl.ioctl(control, _CTL_GET_FREE)}"
            descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _SET_FD, backing_file.fileno())
            except OSError as error:
                os.close(descriptor)
                if error.errno == errno.EBUSY:
                    continue
                raise
            status = bytearray(232)
            struct.pack_into("I", status, 52, _AUTOCLEAR)
            fcntl.ioctl(descriptor, _SET_STATUS64, status)
            # This avoids caching everything twice. Also, if the disk has too little room for a cached write, the kernel
            # silently drops the rest of it. Not every file system supports direct I/O.
            with contextlib.suppress(OSError):
                fcntl.ioctl(descriptor, _SET_DIRECT_IO, 1)
            return descriptor, device
    raise MachineLacks(f"no free loop device for {image} (tvsnap doctor)")
