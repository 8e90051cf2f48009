"""A local S3 server, which forgets all when it ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

BUCKET = "tests"
_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Starts a server with a bucket, to which the environment points meanwhile; yields the bucket's address."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("AWS_ENDPOINT_URL", endpoint)
            environment.setenv("AWS_ACCESS_KEY_ID", "testing")
            environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
            environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
            environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
            deadline = time.monotonic() + 60
            while True:
                try:
                    request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
                    urllib.request.urlopen(request, timeout=10).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline, "the server does not start"
                    time.sleep(0.1)
            yield f"s3://{BUCKET}"
    finally:
        process.kill()
        process.wait()
        assert not os.path.exists(f"/proc/{process.pid}/exe")
