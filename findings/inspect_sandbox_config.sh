#!/usr/bin/env bash
# Inspect (inspect_ai 0.3.285): the configuration behind a sandbox's name, as in `--sandbox NAME:CONFIG`
#
# Guess: a sandbox that is no Docker gets the text as it was given; and what the command line says counts.
# Behaviour: the text is a path: it is made absolute, from the folder of the task, whether there is such a file or not.
# What a sample says for the same sandbox counts before what the command line says, and stays as it is.
. "$(dirname "$0")/common.sh"
packages inspect-ai==0.3.285

cat >probe.py <<'END'
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.solver import solver
from inspect_ai.util import SandboxEnvironment, sandboxenv

@sandboxenv(name="probe")
class Probe(SandboxEnvironment):
    @classmethod
    async def sample_init(cls, task_name, config, metadata):
        print("config:", config)
        return {"default": cls()}
    @classmethod
    async def sample_cleanup(cls, task_name, config, environments, interrupted): pass
    @classmethod
    def config_files(cls): return []
    async def exec(self, *args, **kwargs): pass
    async def write_file(self, *args, **kwargs): pass
    async def read_file(self, *args, **kwargs): pass

@solver
def none():
    async def solve(state, generate): return state
    return solve

@task
def bare(): return Task(dataset=[Sample(input="a")], solver=none())

@task
def named(): return Task(dataset=[Sample(input="a", sandbox=("probe", "of-sample"))], solver=none())
END
config() {
    PATH=$work/venv/bin:$PATH inspect eval "probe.py@$1" --model mockllm/model --display plain --sandbox "$2" >said 2>&1 ||
        { cat said >&2; exit 2; }
    sed -n "s|^config: ||p" said | sed "s|$(pwd -P)|FOLDER|"
}
seen "--sandbox probe:terminal" "$(config bare probe:terminal)" FOLDER/terminal
seen "the same, where a sample says of-sample" "$(config named probe:terminal)" of-sample
