"""Trainers themselves on tvsnap's plug-ins, with a tiny model or a scripted one."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tvsnap
from tvsnap.plugins.harnesses.attempts import Setting, as_row
from tvsnap.plugins.training.tasks import Task, tasks

GUIDE = Path(__file__).parents[3] / "docs/guides/trainers.md"


def told(row: dict[str, Any], **more: str) -> dict[str, Any]:
    """Returns a row whose task says more."""
    return {**row, "tvsnap": json.dumps({**json.loads(row["tvsnap"]), **more})}


@pytest.fixture(scope="session")
def task() -> Task:
    (found,) = tasks("train", 1, seed=7, kinds=["count"])
    return found


@pytest.fixture
def row(task: Task) -> dict[str, Any]:
    """The task, in states of the test's own."""
    return told(as_row(task), salt=uuid.uuid4().hex)


@pytest.fixture(params=["cache", "server"])
def place(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Where sandboxes are."""
    if request.param == "cache":
        yield {"home": os.environ["TVSNAP_HOME"], "policy": "eager"}  # on a busy machine, too
    else:
        yield {"url": os.environ["TVSNAP_TEST_URL"]}


def commands(task: Task) -> list[str]:
    return list(task.solutions[0])


class TestSkyRL:
    def attempt(
        self, row: dict[str, Any], place: dict[str, str], said: list[str], aside: dict[str, Any] | None = None
    ) -> list[Any]:
        """`aside` are the columns of a row that says its task in `extra_info`."""
        import skyrl_gym

        if "tvsnap" not in skyrl_gym.envs.registration.registry:
            skyrl_gym.register("tvsnap", "tvsnap.integrations.skyrl:TerminalEnv")
        extras = {**row, "max_turns": 9} if aside is None else {"extra_info": row, **aside, "max_turns": 9}
        env = skyrl_gym.make("tvsnap", env_config=place, extras=extras)
        try:
            env.init([{"role": "user", "content": row["instruction"]}])
            return [env.step(one) for one in said] + [env.get_metrics()]
        finally:
            env.close()

    def test_a_solution_is_rewarded_and_answered_the_second_time(
        self, row: dict[str, Any], task: Task, place: dict[str, str]
    ) -> None:
        said = [*(f"I do <bash>{command}</bash>" for command in commands(task)), "Done."]
        first, second = self.attempt(row, place, said), self.attempt(row, place, said, {"image": "a picture"})
        assert [(one["observations"], one["reward"], one["done"]) for one in first[:-1]] == [
            (one["observations"], one["reward"], one["done"]) for one in second[:-1]
        ]
        assert (first[-2]["reward"], first[-2]["done"]) == (1.0, True)
        assert first[-1]["tvsnap/executed"] == len(task.setup) + len(said) - 1
        assert second[-1]["tvsnap/hit"] == len(task.setup) + len(said) - 1

    def test_nothing_done_is_worth_nothing(self, row: dict[str, Any], place: dict[str, str]) -> None:
        assert self.attempt(row, place, ["I do not know."])[0]["reward"] == 0.0

    def test_the_last_turn_ends_it(self, row: dict[str, Any], place: dict[str, str]) -> None:
        steps = self.attempt(row, place, ["<bash>false</bash>"] * 9)
        assert [one["done"] for one in steps[:-1]] == [False] * 8 + [True]
        assert steps[0]["observations"] == [{"role": "user", "content": "[exit status 1]"}]


@pytest.mark.parametrize("command", ["echo \ud83d", "echo a\0", 5])
def test_what_is_no_command_is_told_to_the_model(row: dict[str, Any], command: Any) -> None:
    attempt = Setting.of({"home": os.environ["TVSNAP_HOME"]}).attempt(row)
    assert attempt.bash(command).startswith("[the command ")
    assert attempt.bash("echo ok") == "ok\n"
    assert attempt.reward() == 0.0
    attempt.close()


class TestOpenEnv:
    def test_a_session_is_a_rollout(self, row: dict[str, Any], task: Task, place: dict[str, str]) -> None:
        from openenv.core.env_server.http_server import create_fastapi_app
        from starlette.testclient import TestClient

        from tvsnap.plugins.harnesses.openenv import TerminalAction, TerminalObservation, environment_factory

        make = environment_factory(**place, task=row["tvsnap"])
        app = create_fastapi_app(make, TerminalAction, TerminalObservation)

        def attempt() -> list[Any]:
            with TestClient(app) as client, client.websocket_connect("/ws") as session:

                def ask(kind: str, data: dict[str, Any]) -> Any:
                    session.send_json({"type": kind, "data": data})
                    answer = session.receive_json()
                    assert answer["type"] != "error", answer
                    return answer["data"]

                ask("reset", {})
                said = [ask("step", {"command": command}) for command in commands(task)]
                return [*said, ask("step", {"command": None})]

        first, second = attempt(), attempt()
        assert first == second
        assert (first[-1]["reward"], first[-1]["done"]) == (1.0, True)

    def test_nobody_tries_on_after_the_reward(self, row: dict[str, Any], place: dict[str, str]) -> None:
        from tvsnap.plugins.harnesses.openenv import TerminalAction, environment_factory

        environment = environment_factory(**place, task=row["tvsnap"])()
        environment.reset()
        assert environment.step(TerminalAction()).reward == 0.0
        with pytest.raises(tvsnap.UsageError, match="is over"):
            environment.step(TerminalAction(command="true"))
        environment.reset()
        assert environment.step(TerminalAction(command="echo 1")).output == "1\n"
        environment.close()


class TestTinker:
    def test_the_recipe_of_harbor_runs_and_grades_in_it(self, place: dict[str, str], tmp_path: Path) -> None:
        from tinker_cookbook.recipes.harbor_rl.harbor_tools import HarborBashTool, HarborReward
        from tinker_cookbook.sandbox import SandboxInterface
        from tinker_cookbook.tool_use import ToolInput

        from tvsnap.plugins.harnesses.tinker import sandbox_factory

        folder = tmp_path / f"task-{uuid.uuid4().hex[:8]}" / "environment"
        folder.mkdir(parents=True)
        (folder / "image.yaml").write_text(f"name: {folder.parent.name}\nimage: terminal\nenv: {{SALT: '{folder}'}}\n")
        tests = folder.parent / "tests" / "nested"
        tests.mkdir(parents=True)
        (tests / "wanted").write_text("42\n")
        (tests.parent / "test.sh").write_text(
            "reward=0; cmp /tests/nested/wanted /root/answer && reward=1; echo $reward > /logs/verifier/reward.txt\n"
        )

        async def attempt() -> Any:
            sandbox = await sandbox_factory(**place)(folder, 60)
            assert isinstance(sandbox, SandboxInterface)
            tool = HarborBashTool(sandbox, command_timeout=10)
            said = [
                await tool.bash.run(ToolInput(arguments={"command": command}, call_id="1"))
                for command in ("echo 42 > /root/answer; pwd", "cat /root/answer; echo no >&2; exit 3", "sleep 0.3")
            ]
            reward = await HarborReward(tests.parent, sandbox, grader_timeout=30)([])
            sources = dict(sandbox.sources)
            await sandbox.cleanup()
            return said, reward, sources

        first, second = asyncio.run(attempt()), asyncio.run(attempt())
        assert first[1] == second[1] == (1.0, {"reward": 1.0, "test_passed": 1.0})
        assert str(first[0]) == str(second[0])
        assert first[2]["hit"] == 0
        assert second[2] == {"hit": sum(first[2].values()), "coalesced": 0, "executed": 0}

    def test_the_example_of_the_guide_grades_in_its_sandboxes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As printed; but the loop that asks Tinker's service for a model is one that works on the task itself."""
        from tinker_cookbook.recipes.harbor_rl import harbor_env
        from tinker_cookbook.recipes.harbor_rl import train as recipe

        (example,) = re.findall(r"```python\n(from tvsnap.integrations.tinker .*?)```", GUIDE.read_text(), re.DOTALL)
        folder = tmp_path / "terminal-bench-2.0" / f"answer-{uuid.uuid4().hex[:8]}"
        for inner in ("environment", "tests"):
            (folder / inner).mkdir(parents=True)
        (folder / "instruction.md").write_text("Write 42 to /root/answer.\n")
        (folder / "task.toml").write_text('version = "1.0"\n')
        (folder / "environment/image.yaml").write_text(f"name: {folder.name}\nimage: terminal\n")
        check = "reward=0; grep -qx 42 /root/answer && reward=1; echo $reward > /logs/verifier/reward.txt\n"
        (folder / "tests/test.sh").write_text(check)
        rewards = []

        async def loop(config: Any) -> None:
            builder = config.dataset_builder
            (task,) = builder.tasks
            for command in ("true", "echo 42 > /root/answer"):
                sandbox = await builder.sandbox_factory(task.task_dir / "environment", builder.sandbox_timeout)
                assert (await sandbox.run_command(command)).exit_code == 0
                reward, _ = await harbor_env.HarborReward(
                    task.task_dir / "tests", sandbox, grader_timeout=builder.grader_timeout
                )([])
                rewards.append(reward)
                await sandbox.cleanup()

        monkeypatch.setattr(harbor_env, "HARBOR_CACHE_DIR", tmp_path)
        monkeypatch.setattr(recipe, "main", loop)
        monkeypatch.setenv("HOME", str(tmp_path))
        names: dict[str, Any] = {}
        exec(example, names)
        asyncio.run(names["train"]())
        assert rewards == [0.0, 1.0]

    def test_files(self, place: dict[str, str]) -> None:
        from tvsnap.plugins.harnesses.tinker import sandbox_factory

        async def attempt() -> None:
            sandbox = await sandbox_factory(**place)("terminal", 60)  # type: ignore[arg-type]
            try:
                data = "it's\r\n" * 1000
                assert (await sandbox.write_file("/a dir/x y", data, executable=True)).exit_code == 0
                assert (await sandbox.read_file("/a dir/x y")).stdout == data
                assert (await sandbox.read_file("/a dir/x y", max_bytes=4)).stdout == "it's"
                assert (await sandbox.run_command("test -x '/a dir/x y'; echo $?")).stdout == "0\n"
                missing = await sandbox.read_file("/nowhere")
                assert (missing.exit_code, "No such file" in missing.stderr) == (1, True)
                late = await sandbox.run_command("echo begun; sleep 30", timeout=1)
                assert (late.exit_code, late.stdout) == (124, "begun\n")
                cut = await sandbox.run_command("yes | head -c 1000", max_output_bytes=10)
                assert cut.stdout == "y\n" * 5
                assert (await sandbox.run_command("pwd", workdir="/tmp")).stdout == "/tmp\n"
            finally:
                await sandbox.cleanup()

        asyncio.run(attempt())


class TestVerl:
    """verl's agent loop itself; what a model would write is scripted."""

    def attempt(
        self, row: dict[str, Any], place: dict[str, str], said: list[str], tokenizer: Any
    ) -> tuple[Any, list[Any]]:
        """Returns what the loop makes of a row, and all prompts that it showed the model."""
        from omegaconf import OmegaConf
        from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
        from verl.workers.rollout.replica import TokenOutput

        from tvsnap.plugins.harnesses.verl import BashTool, TvsnapToolAgentLoop

        shown: list[str] = []

        class Scripted:
            async def generate(self, *, prompt_ids: list[int], **kwargs: Any) -> Any:
                shown.append(tokenizer.decode(prompt_ids))
                return TokenOutput(token_ids=tokenizer.encode(said[len(shown) - 1] + "|"), num_preempted=0)

        turns = {
            "max_user_turns": 9,
            "max_assistant_turns": 9,
            "max_parallel_calls": 2,
            "max_tool_response_length": 500,
            "tool_response_truncate_side": "middle",
            "format": "hermes",
        }
        rollout = {"multi_turn": turns, "prompt_length": 4000, "response_length": 4000, "full_determinism": False}
        config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})

        async def run() -> Any:
            loop = TvsnapToolAgentLoop(
                DictConfigWrap(config),
                Scripted(),
                tokenizer,
                None,
                object,
                DictConfigWrap(OmegaConf.create({})),
                tools=ToolListWrap([BashTool({"type": "native", **place})]),
            )
            messages = [{"role": "user", "content": row["instruction"]}]
            return await loop.run({}, raw_prompt=messages, extra_info=row)

        return asyncio.run(run()), shown

    def test_calls_of_a_request_are_one_rollout_which_is_graded(
        self, row: dict[str, Any], task: Task, place: dict[str, str], tokenizer: Any
    ) -> None:
        def said(command: str) -> str:
            return f"<tool_call>{json.dumps({'name': 'bash', 'arguments': {'command': command}})}</tool_call>"

        # Two calls in one message are made in their order.
        turns = [said("cd /tmp; X=1") + said("pwd; echo $X"), *map(said, ["cd /app", *commands(task)]), "Done."]
        first, shown = self.attempt(row, place, turns, tokenizer)
        second, again = self.attempt(row, place, turns, tokenizer)
        assert shown == again
        assert "/tmp\n1\n" in shown[1]
        assert first.reward_score == second.reward_score == 1.0
        assert first.response_ids == second.response_ids
        assert first.extra_fields["tvsnap"]["executed"] == len(task.setup) + len(turns)
        assert second.extra_fields["tvsnap"]["hit"] == len(task.setup) + len(turns)

    def test_who_does_nothing_is_graded_too(self, row: dict[str, Any], place: dict[str, str], tokenizer: Any) -> None:
        assert self.attempt(row, place, ["No idea."], tokenizer)[0].reward_score == 0.0

    def test_the_configuration_of_the_guide_is_verls(self, tmp_path: Path) -> None:
        from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
        from verl.tools.tool_registry import initialize_tools_from_config

        from tvsnap.plugins.harnesses.verl import BashTool

        text = GUIDE.read_text()
        (tools,) = re.findall(r"```yaml\n# tools.yaml\n(.*?)```", text, re.DOTALL)
        (tmp_path / "tools.yaml").write_text(tools)
        overrides = re.findall(r"^actor_rollout_ref\.\S+$", text, re.MULTILINE)
        hydra = importlib.import_module("hydra")
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            rollout = hydra.compose("ppo_trainer", overrides=overrides).actor_rollout_ref.rollout
        assert rollout.multi_turn.tool_config_path == "tools.yaml"
        (tool,) = initialize_tools_from_config(tmp_path / rollout.multi_turn.tool_config_path)
        assert isinstance(tool, BashTool)
        assert rollout.agent.default_agent_loop in _agent_loop_registry

    def test_an_error_of_tvsnap_is_none_of_the_models(self, row: dict[str, Any], tokenizer: Any) -> None:
        call = '<tool_call>{"name": "bash", "arguments": {"command": "true"}}</tool_call>'
        with pytest.raises(tvsnap.errors.NotFound, match="no-such-image"):
            self.attempt(
                told(row, image="no-such-image"), {"home": os.environ["TVSNAP_HOME"]}, [call, "Done."], tokenizer
            )


class TestTRL:
    """GRPOTrainer itself, with a tiny model whose answers are replaced by scripted ones."""

    def train(
        self, row: dict[str, Any], place: dict[str, str], turns: list[list[str]], folder: Path
    ) -> tuple[Any, list[str]]:
        """Makes one step with a group of rollouts, and returns the trainer and all that was generated or shown."""
        from datasets import Dataset
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
        from trl import GRPOConfig, GRPOTrainer
        from trl.chat_template_utils import qwen3_instruct_2507_chat_template

        from tvsnap.plugins.harnesses.trl import environment_factory

        special = ["<|im_end|>", "<|im_start|>"]
        characters = [*special, *(chr(code) for code in range(32, 127)), "\n"]
        plain = Tokenizer(models.WordLevel({one: id for id, one in enumerate(characters)}, unk_token=" "))
        plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
        plain.decoder = decoders.Fuse()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=plain, eos_token=special[0], pad_token=special[0], clean_up_tokenization_spaces=False
        )
        tokenizer.add_special_tokens({"additional_special_tokens": [special[1]]})
        tokenizer.chat_template = qwen3_instruct_2507_chat_template
        shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(characters), num_key_value_heads=2, **shape))
        heard: list[str] = []

        class Scripted(GRPOTrainer):  # type: ignore[misc]
            asked = 0

            def _generate_single_turn(self, prompt_ids: list[list[int]], *others: Any, **more: Any) -> Any:
                heard.extend(tokenizer.decode(ids) for ids in prompt_ids)
                answers = [turn[self.asked] for turn in turns if self.asked < len(turn)]
                assert len(answers) == len(prompt_ids)
                self.asked += 1
                return [tokenizer.encode(answer + special[0]) for answer in answers], None

        options = {"per_device_train_batch_size": len(turns), "num_generations": len(turns), "max_steps": 1}
        trainer = Scripted(
            model,
            train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "Do it."}], **row}]),
            processing_class=tokenizer,
            environment_factory=environment_factory(**place),
            args=GRPOConfig(
                str(folder),
                **options,
                learning_rate=0.01,
                max_completion_length=4000,
                logging_steps=1,
                report_to=[],
                save_strategy="no",
                use_cpu=True,
            ),
        )
        trainer.train()
        return trainer, heard

    def test_a_group_is_graded_and_the_model_changes(
        self, row: dict[str, Any], task: Task, place: dict[str, str], tmp_path: Path
    ) -> None:
        def said(command: str) -> str:
            call = {"name": "bash", "arguments": {"command": command}}
            return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"

        turns = [[*map(said, ["cd /app; X=7", "pwd; echo $X", *commands(task)]), "Done."], ["I cannot."]]
        trainer, heard = self.train(row, place, turns, tmp_path / "one")
        logged = trainer.state.log_history[0]
        assert logged["reward"] == 0.5
        assert logged["grad_norm"] > 0
        assert any("/app\n7\n" in one for one in heard)
        again, heard_again = self.train(row, place, turns, tmp_path / "two")
        assert heard == heard_again
        assert again.state.log_history[0]["reward"] == 0.5

    def test_an_error_of_tvsnap_is_no_reward(self, row: dict[str, Any], tmp_path: Path) -> None:
        place = {"home": os.environ["TVSNAP_HOME"]}
        with pytest.raises(tvsnap.errors.NotFound, match="no-such-image"):
            self.train(told(row, image="no-such-image"), place, [["Done."], ["Done."]], tmp_path)
