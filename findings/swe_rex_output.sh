#!/usr/bin/env bash
# SWE-ReX 1.4.0: the output of a command in a bash session, and carriage returns of a file
#
# Guess: the output is what the command wrote; a file that was written by `write_file` is read back as it was.
# Behaviour: five characters of line ends stand around each output, also where the command wrote nothing, and two where
# it wrote a line: "\r\na\n\r\n\r\n". And `read_file` drops the carriage returns that `write_file` has written.
. "$(dirname "$0")/common.sh"
packages swe-rex==1.4.0

cat >session.py <<'END'
import asyncio, logging
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest, ReadFileRequest, WriteFileRequest
from swerex.runtime.local import LocalRuntime
async def main():
    runtime = LocalRuntime()
    for handler in list(runtime.logger.handlers):
        runtime.logger.removeHandler(handler)
    await runtime.create_session(CreateBashSessionRequest(startup_timeout=30))
    for command in ("true", "echo a"):
        print(repr((await runtime.run_in_session(BashAction(command=command))).output))
    await runtime.write_file(WriteFileRequest(path="lines", content="a\r\nb\r\n"))
    print(open("lines", "rb").read(), repr((await runtime.read_file(ReadFileRequest(path="lines"))).content))
    await runtime.close()
asyncio.run(main())
END
python session.py >out 2>errors || { cat errors >&2; exit 2; }
seen "true" "$(sed -n 1p out)" "'\\r\\n\\r\\n\\r\\n'"
seen "echo a" "$(sed -n 2p out)" "'\\r\\na\\n\\r\\n\\r\\n'"
seen "a file, written and read" "$(sed -n 3p out)" "b'a\\r\\nb\\r\\n' 'a\\nb\\n'"
