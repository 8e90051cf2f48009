#!/usr/bin/env bash
# docker 7.2.0, Docker's SDK for Python: limits, mounts, variables and .dockerignore, as it sends them
#
# Guess: as by `docker run` and `docker build`; what does not fit is an error; 0 is a value.
# Behaviour: the mount "data:/data:rw,z" can only be read, and "./data:/data" is a volume of that name. cpuset_cpus=0 and pids_limit=0 are left out, that is, no limit; so is a memory of
# "0.0001k", which is 0, and "1.5" is one byte. True as a variable is "True", and None one without a value. A line `export A=1` in a file of variables is "export A", `B = x`
# is "B " and " x"; one of spaces and a comment is an error. In .dockerignore [^a]* leaves out a.py, and nothing else.
. "$(dirname "$0")/common.sh"
packages docker==7.2.0

cat >values.py <<'PYTHON'
import os
from docker.errors import DockerException
from docker.models.containers import _create_container_args
from docker.types import Mount
from docker.utils import exclude_paths, format_environment, parse_bytes, parse_env_file
for text in ("data:/data:rw", "data:/data:rw,z", "./data:/data"):
    mount = Mount.parse_mount_string(text)
    print(mount["Type"], mount["Source"], mount["ReadOnly"])
def limits(**given):
    host = _create_container_args({"image": "task", "version": "1.44", **given})["host_config"]
    return {name: value for name, value in sorted(host.items()) if name != "NetworkMode"}
print(limits(cpuset_cpus=0, pids_limit=0), limits(cpuset_cpus="0", pids_limit=1), limits(mem_limit="0.0001k"), parse_bytes("1.5"))
print(format_environment({"A": True, "B": None, "C": "", "D": 0}))
def variables(text):
    with open("variables", "w") as file:
        file.write(text)
    try:
        return parse_env_file("variables")
    except DockerException:
        return "error"
print(variables("export A=1\nB = x\nC='y'\n"), variables("  # a comment\n"))
os.mkdir("context")
for name in ("a.py", "b.py"):
    open("context/" + name, "w").close()
print(sorted(exclude_paths("context", ["[^a]*"])))
PYTHON
python values.py >out
seen "data:/data:rw" "$(sed -n 1p out)" "volume data False"
seen "data:/data:rw,z" "$(sed -n 2p out)" "volume data True"
seen "./data:/data" "$(sed -n 3p out)" "volume ./data False"
seen "limits of 0; of \"0\" and 1; a memory of 0.0001k; 1.5" "$(sed -n 4p out)" "{} {'CpusetCpus': '0', 'PidsLimit': 1} {'Memory': 0} 1"
seen "True, None, an empty text and 0 as variables" "$(sed -n 5p out)" "['A=True', 'B', 'C=', 'D=0']"
seen "a file of variables; a comment behind spaces" "$(sed -n 6p out)" "{'export A': '1', 'B ': ' x', 'C': \"'y'\"} error"
seen "what [^a]* leaves of a.py and b.py" "$(sed -n 7p out)" "['b.py']"
