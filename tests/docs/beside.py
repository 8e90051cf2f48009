"""Runs a command beside a model's server at port 8000 and an object store (`s3://tests`), in a network of its own.

unshare --net python -m tests.docs.beside COMMAND...
"""

from __future__ import annotations

import subprocess
import sys

from tests.proxy.conftest import model_server
from tests.registry.s3 import s3_server

if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with model_server(8000), s3_server():
        ran = subprocess.run(sys.argv[1:], check=False)
    sys.exit(ran.returncode)
