"""Inspect's evals on tvsnap, with its scripted model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessage, ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import TaskState, basic_agent
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironmentSpec, sandbox
from inspect_ai.util._sandbox.local import LocalSandboxEnvironment

import tvsnap
from tvsnap.images import ImageNotFound
from tvsnap.plugins.harnesses.inspect_ai import TvsnapSandboxConfig, TvsnapSandboxEnvironment

COMMANDS = ["cat /root/given", "echo $(($(cat /root/given) + 1)) > /root/answer", "sleep 60", "cat /root/answer /no"]
SAMPLES = 8


@scorer(metrics=[accuracy()])
def answer_is_right() -> Any:
    async def score(state: TaskState, target: Target) -> Score:
        said = await sandbox().read_file("/root/answer")
        ours = sandbox().as_type(TvsnapSandboxEnvironment)
        return Score(value=float(said == target.text), metadata=dict(ours.sources))

    return score


def answer(messages: list[ChatMessage], *_: Any) -> ModelOutput:
    """Returns the model's next answer: as many were given as the conversation holds."""
    given = sum(message.role == "assistant" for message in messages)
    name, arguments = ("bash", {"command": COMMANDS[given]}) if given < len(COMMANDS) else ("submit", {"answer": "42"})
    said = ModelOutput.for_tool_call("mockllm", name, arguments)
    said.usage = ModelUsage()  # or Inspect counts tokens, with tables from the network
    return said


def run(config: TvsnapSandboxConfig, logs: Path, samples: int = SAMPLES) -> tuple[Any, list[Any], dict[str, int]]:
    """Returns an eval's accuracy, all that tools said in each sample, and how calls were answered."""
    task = Task(
        dataset=[
            Sample(
                id=number,
                input="add one",
                target="42\n",
                files={"/root/given": "41\n"},
                setup="echo $(basename $0) ran >> /root/log; ls -d /etc",
            )
            for number in range(samples)
        ],
        solver=basic_agent(tools=[bash(timeout=1)]),
        scorer=answer_is_right(),
        sandbox=SandboxEnvironmentSpec("tvsnap", config),
    )
    model = get_model("mockllm/model", custom_outputs=answer)
    (log,) = eval(task, model=model, log_dir=str(logs), display="none", max_samples=samples)
    assert log.status == "success", log.error
    said = [
        [message.text for message in sample.messages if isinstance(message, ChatMessageTool)]
        + [message.error.type for message in sample.messages if isinstance(message, ChatMessageTool) and message.error]
        for sample in log.samples or ()
    ]
    scores = [score for sample in log.samples or () for score in (sample.scores or {}).values()]
    sources = {way: sum(score.metadata[way] for score in scores) for way in ("hit", "coalesced", "executed")}
    assert log.results is not None
    return log.results.scores[0].metrics["accuracy"].value, said, sources


def test_an_eval_comes_to_the_same_with_and_without_the_cache(home: str, salt: str, tmp_path: Path) -> None:
    told: dict[str, Any] = {"image": "terminal", "home": home, "salt": salt, "policy": "eager"}
    without = run(TvsnapSandboxConfig(**told, use_cache=False), tmp_path)
    first = run(TvsnapSandboxConfig(**told), tmp_path)
    second = run(TvsnapSandboxConfig(**told), tmp_path)
    assert without[:2] == first[:2] == second[:2]
    accuracy_of_all, said, counted = first
    assert accuracy_of_all == 1.0
    assert said[0][0] == "41\n"
    assert "timeout" in said[0]
    each = sum(counted.values()) // SAMPLES
    assert each <= counted["executed"] < each * SAMPLES, "where the machine is slow, some are executed side by side"
    assert second[2] == {"hit": each * SAMPLES, "coalesced": 0, "executed": 0}


async def begin(home: str, salt: str) -> TvsnapSandboxEnvironment:
    config = TvsnapSandboxConfig(image="terminal", home=home, salt=salt)
    environments = await TvsnapSandboxEnvironment.sample_init("by-hand", config, {})
    ours = environments["default"]
    assert isinstance(ours, TvsnapSandboxEnvironment)
    return ours


async def end(sandbox: TvsnapSandboxEnvironment) -> None:
    await TvsnapSandboxEnvironment.sample_cleanup("by-hand", sandbox.config, {"default": sandbox}, False)


async def test_a_cancelled_call_ends_its_command(home: str, salt: str) -> None:
    ours = await begin(home, salt)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(ours.exec(["sleep", "600"]), 0.5)
    assert (await ours.exec(["echo", "next"])).stdout == "next\n"
    await end(ours)


async def test_what_was_printed_before_a_timeout_is_handed_over(home: str, salt: str) -> None:
    """It is where Inspect's own Docker sandbox has it."""
    ours = await begin(home, salt)
    with pytest.raises(TimeoutError, match="ended after 1 seconds") as late:
        await ours.exec(["sh", "-c", "echo partial; echo error >&2; sleep 60"], timeout=1)
    assert vars(late.value)["truncated_output"] == "partial\nerror\n"
    with pytest.raises(TimeoutError) as silent:
        await ours.exec(["sleep", "60"], timeout=1)
    assert not hasattr(silent.value, "truncated_output")
    await end(ours)


async def test_a_nul_stays_in_the_output_as_in_inspects_own_sandbox(home: str, salt: str) -> None:
    ours = await begin(home, salt)
    for one in (ours, LocalSandboxEnvironment()):
        assert (await one.exec(["printf", r"a\0b\n"])).stdout == "a\0b\n"
    await end(ours)


@pytest.mark.parametrize("told", ["terminal", "/nowhere/tasks/terminal"])
async def test_a_text_names_an_image_although_inspect_makes_a_path_of_it(
    told: str, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVSNAP_HOME", home)
    await TvsnapSandboxEnvironment.task_init("by-hand", told)
    made = await TvsnapSandboxEnvironment.sample_init("by-hand", told, {})
    assert (await made["default"].exec(["echo", "here"])).stdout == "here\n"
    await TvsnapSandboxEnvironment.sample_cleanup("by-hand", told, made, False)
    with pytest.raises(ImageNotFound, match='image "termnal" not found'):
        await TvsnapSandboxEnvironment.task_init("by-hand", told.replace("terminal", "termnal"))


async def test_several_calls_at_once(home: str, salt: str) -> None:
    ours = await begin(home, salt)
    done = await asyncio.gather(*(ours.exec(["sh", "-c", f"echo {n}; echo {n} >> /tmp/all"]) for n in range(8)))
    assert [one.stdout for one in done] == [f"{n}\n" for n in range(8)]
    assert sorted((await ours.read_file("/tmp/all")).split()) == [str(n) for n in range(8)]
    await end(ours)


async def test_commands_that_are_awaited_at_once_run_side_by_side(home: str, salt: str) -> None:
    """Each waits for the next: one after the other, they would wait for ever."""
    scripts = ["cat < a > b; echo first", "cat < b > c; echo second >&2; exit 4", "echo $WORD > a; cat < c"]
    said = []
    for _ in range(2):
        ours = await begin(home, salt)
        await ours.exec(["mkfifo", "/tmp/a", "/tmp/b", "/tmp/c"])
        asked = (ours.exec(["sh", "-c", one], cwd="/tmp", env={"WORD": "all the way"}, timeout=60) for one in scripts)
        said.append([(one.stdout, one.stderr, one.returncode) for one in await asyncio.gather(*asked)])
        await end(ours)
    assert said == [[("first\n", "", 0), ("", "second\n", 4), ("all the way\n", "", 0)]] * 2


async def test_a_shell_can_be_opened_in_a_fork_of_a_sample(home: str, salt: str) -> None:
    ours = await begin(home, salt)
    await ours.exec(["sh", "-c", "echo here > /tmp/seen"])
    command = (await ours.connection()).command
    shell = await asyncio.create_subprocess_shell(
        f"{command} <<<'cat /tmp/seen'",
        executable="/bin/bash",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await shell.communicate()
    assert b"here" in said, said
    await end(ours)


async def test_a_failure_of_tvsnap_is_not_shown_as_a_commands_output(home: str, salt: str) -> None:
    ours = await begin(home, salt)
    await end(ours)
    with pytest.raises(tvsnap.UsageError, match="closed"):
        await ours.exec(["true"])
    with pytest.raises(tvsnap.errors.NotFound, match="no-such-image"):
        await TvsnapSandboxEnvironment.task_init("none", TvsnapSandboxConfig(image="no-such-image", home=home))
