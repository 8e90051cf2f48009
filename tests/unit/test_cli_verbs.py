"""Each verb of the command line on the fake backend: what it prints, what it leaves, how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.exec import exit_status
from tests.fakes.caches import BUSY, open_cache
from tests.unit.cli_helpers import CommandLine, make_command_line, rollout_line
from tvsnap.host.owners import Owner
from tvsnap.model.errors import InfrastructureError, NotCheckpointable, NotFound
from tvsnap.model.observations import Outcome


@pytest.fixture
def tvsnap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return make_command_line(tmp_path, monkeypatch)


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    """A file with two rollouts that begin alike."""
    file = tmp_path / "rollouts.jsonl"
    lines = [
        rollout_line("echo x > f", "cat f", "echo a > g", task="fix-git", name="one"),
        rollout_line("echo x > f", "cat f", "echo b > g", task="fix-vim", name="two"),
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


class TestReplay:
    def test_figures_and_files(self, tvsnap: CommandLine, rollouts: Path, tmp_path: Path) -> None:
        report, outputs = tmp_path / "report.json", tmp_path / "outputs.jsonl"
        report.write_text("what was there before, and longer than what comes" * 1000)
        arguments = ["replay", str(rollouts), "--image", "terminal", "--parallel", "1", "--policy", "eager"]
        shown = tvsnap(*arguments, "--report", str(report), "--outputs", str(outputs)).stdout
        assert "2 rollouts, 6 calls in " in shown
        assert "33.3 %" in shown
        assert max(map(len, shown.splitlines())) <= 80
        data = json.loads(report.read_text())
        assert (data["rollouts"], data["calls"], data["hits"], data["executed"]) == (2, 6, 2, 4)
        lines = [json.loads(line) for line in outputs.read_text().splitlines()]
        assert [(line["rollout"], line["index"], line["source"]) for line in lines] == [
            ("one", 0, "executed"),
            ("one", 1, "executed"),
            ("one", 2, "executed"),
            ("two", 0, "hit"),
            ("two", 1, "hit"),
            ("two", 2, "executed"),
        ]
        again = tvsnap.json(*arguments)
        assert (again["hits"] + again["coalesced"], again["hit_rate"]) == (6, 1.0)

    def test_without_the_cache(self, tvsnap: CommandLine, rollouts: Path) -> None:
        for _ in range(2):
            data = tvsnap.json("replay", str(rollouts), "--image", "terminal", "--no-cache")
            assert (data["executed"], data["hits"], data["not_shared"]) == (6, 0, [])
        with tvsnap.graph() as graph:
            assert graph.tree() == []

    def test_selecting_and_repeating(self, tvsnap: CommandLine, rollouts: Path) -> None:
        data = tvsnap.json("replay", str(rollouts), "--image", "terminal", "--task", "*-vim", "--repeat", "3")
        # The last call of a pass may still be being recorded when the next pass comes to it.
        assert (data["rollouts"], data["executed"], data["hits"] + data["coalesced"]) == (3, 3, 6)
        assert [entry["hit_rate"] for entry in data["passes"]] == [0.0, 1.0, 1.0]
        shown = tvsnap("replay", str(rollouts), "--image", "terminal", "--limit", "1", "--repeat", "2").stdout
        assert "2 rollouts, 6 calls" in shown
        assert "pass" in shown

    def test_rollouts_that_name_their_image(self, tvsnap: CommandLine, tmp_path: Path) -> None:
        file = tmp_path / "r.jsonl"
        file.write_text(rollout_line("ls", image="terminal"))
        tvsnap("replay", str(file))
        file.write_text(rollout_line("ls", image="nothing"))
        ran = tvsnap("replay", str(file), "--image", "terminal")
        assert ran.stderr.splitlines()[0] == (
            'note: 1 rollout names another image ("nothing"); --image "terminal" is used'
        )
        file.write_text(rollout_line("ls"))
        assert tvsnap.error("replay", str(file), status=2) == (
            f"{file}:1: the rollout names no image; give one with --image"
        )

    def test_one_broken_line(self, tvsnap: CommandLine, rollouts: Path) -> None:
        with rollouts.open("a") as stream:
            stream.write('{"task": "t"}\n')
        message = tvsnap.error("replay", str(rollouts), "--image", "terminal", status=2)
        assert message.startswith(f'{rollouts}:3: "calls" is missing')
        assert "nothing was run (--keep-going" in message
        assert not tvsnap.backend.counts["start"]

    def test_a_network_that_is_missing_is_told_of_once(self, tvsnap: CommandLine, tmp_path: Path) -> None:
        command = "echo 'curl: (6) Could not resolve host: example.org'"
        path = tmp_path / "wants.jsonl"
        path.write_text(f"{rollout_line(command)}\n{rollout_line(command, 'ls', command, name='two')}\n")
        result = tvsnap("replay", str(path), "--image", "terminal")
        assert result.stderr.count("sandboxes of terminal have no network") == 1
        result = tvsnap("run", "terminal", "-c", command, "-c", "true", "-c", command)
        assert result.stderr.count("sandboxes of terminal have no network") == 1
        assert "no network" not in result.stdout
        assert "no network" not in tvsnap("run", "terminal", "-c", "echo resolved").stderr

    def test_several_broken_lines_and_keeping_going(self, tvsnap: CommandLine, rollouts: Path) -> None:
        unknown = json.dumps({"task": "t", "rollout": "r", "calls": [{"name": "bsh", "arguments": {"command": "ls"}}]})
        with rollouts.open("a") as stream:
            stream.write(f"{{\n{unknown}\n")
        arguments = ["replay", str(rollouts), "--image", "terminal"]
        lines = tvsnap(*arguments, status=2).stderr.splitlines()
        assert len(lines) == 3
        assert lines[0].startswith(f"tvsnap: {rollouts}:3: no JSON: ")
        assert lines[1].startswith(f'tvsnap: {rollouts}:4: call 0: unknown tool "bsh"; have: bash, exec')
        assert "2 lines are no rollouts; nothing was run" in lines[2]
        assert not tvsnap.backend.counts["start"]
        result = tvsnap(*arguments, "--keep-going", status=1)
        assert "2 rollouts, 6 calls" in result.stdout
        assert "skipping 2 lines" in result.stderr

    def test_nothing_to_run(self, tvsnap: CommandLine, rollouts: Path, tmp_path: Path) -> None:
        message = tvsnap.error("replay", str(rollouts), "--image", "terminal", "--task", "nope", status=2)
        assert message == "no rollouts to run; none is of a task like nope"
        assert "No such file" in tvsnap.error("replay", str(tmp_path / "nope"), "--image", "terminal", status=2)

    def test_result_files_that_cannot_be_written(self, tvsnap: CommandLine, rollouts: Path) -> None:
        arguments = ["replay", str(rollouts), "--image", "terminal"]
        for option in ("--report", "--outputs"):
            message = tvsnap.error(*arguments, option, "/nowhere/file", status=2)
            assert message == "cannot write /nowhere/file: No such file or directory"
        assert not tvsnap.backend.counts["start"]

    def test_a_failed_replay_leaves_result_files_alone(
        self, tvsnap: CommandLine, rollouts: Path, tmp_path: Path
    ) -> None:
        kept, new = tmp_path / "kept", tmp_path / "new"
        kept.write_text("precious")
        tvsnap.backend.faults.fail("run", ZeroDivisionError())
        tvsnap(
            *("replay", str(rollouts), "--image", "terminal", "--report", str(kept), "--outputs", str(new)), status=1
        )
        assert kept.read_text() == "precious"
        assert not new.exists()

    def test_infrastructure_failures(self, tvsnap: CommandLine, rollouts: Path) -> None:
        tvsnap.backend.faults.fail("start", InfrastructureError("no room"))
        result = tvsnap("replay", str(rollouts), "--image", "terminal", "--parallel", "1", status=1)
        assert "1 rollout failed by tvsnap itself" in result.stdout
        assert "no room" in result.stdout

    def test_reasons(self, tvsnap: CommandLine, tmp_path: Path) -> None:
        file = tmp_path / "r.jsonl"
        file.write_text(rollout_line(BUSY, "echo x", "echo y"))
        shown = tvsnap("replay", str(file), "--image", "terminal", "--timeout", "2").stdout
        assert "3 calls not shared" in shown
        assert "1  " in shown
        assert "timed out after 2 s on a busy machine" in shown
        assert "in a private branch: timed out after 2 s" in shown

    def test_audit(self, tvsnap: CommandLine, tmp_path: Path) -> None:
        calls = [
            {"name": "bash", "arguments": {"command": command}} for command in ("echo x > f", "cat f", "echo $RANDOM")
        ]
        path = tmp_path / "audited.jsonl"
        path.write_text(json.dumps({"task": "t", "rollout": "r", "calls": calls}) + "\n")
        replay = ("replay", str(path), "--image", "terminal", "--repeat", "2", "--parallel", "1")
        data = tvsnap.json(*replay, "--audit", "0")
        assert (data["audited"], data["audit_differences"]) == (0, [])
        shown = " ".join(tvsnap(*replay, "--audit", "1", status=4).stdout.split())
        assert "3 answers audited: 2 came to the same when made again, 1 came to something else" in shown
        assert "and will not be given again" in shown
        assert "echo $RANDOM printed " in shown
        assert "not deterministic: an audit printed" in tvsnap("tree", "--all").stdout
        data = tvsnap.json(*replay, "--audit", "1")
        assert (data["audited"], data["audit_differences"]) == (2, [])
        assert "answers made again, 1 of which differed" in tvsnap("stats").stdout
        assert "--audit" in tvsnap(*replay, "--audit", "2", status=2).output


class TestRun:
    def test_output_source_and_state(self, tvsnap: CommandLine) -> None:
        first = tvsnap("run", "terminal", "-c", "echo x > f", "-c", "cat f; (exit 3)").stdout
        assert "> echo x > f\n-- executed, exit 0, " in first
        assert "\nx\n-- executed, exit 3, " in first
        assert "-- hit, exit 3" in tvsnap("run", "terminal", "-c", "echo x > f", "-c", "cat f; (exit 3)").stdout

    def test_output_acts_upon_no_terminal(self, tvsnap: CommandLine) -> None:
        shown = tvsnap("run", "terminal", "-c", r"printf 'a\033]0;x\007b\nc\n'").stdout
        assert "a^[]0;x^Gb\nc\n" in shown
        assert "\x1b" not in shown

    def test_a_tool_by_name(self, tvsnap: CommandLine) -> None:
        arguments = json.dumps({"path": "/tmp/f", "content": "hello"})
        calls = tvsnap.json("run", "terminal", "--tool", "write_file", "--args", arguments)["calls"]
        assert calls[0]["name"] == "write_file"
        assert calls[0]["exit_code"] == 0

    def test_lines_of_standard_input(self, tvsnap: CommandLine) -> None:
        lines = 'echo x > f\n\n:read_file {"path": "f"}\n'
        shown = tvsnap("run", "terminal", stdin=lines).stdout
        assert "> read_file f\nx\n-- executed, exit 0" in shown

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (
                b"echo \xff",
                "line 3 of standard input is not UTF-8: byte 6 is 0xff; neither it nor what follows was run",
            ),
            (b"echo a\0b", "line 3 of standard input must not hold a NUL character"),
        ],
    )
    def test_a_line_of_standard_input_that_is_no_text(self, tvsnap: CommandLine, line: bytes, said: str) -> None:
        data = b"echo x > f\n\n" + line + b"\necho y > f\n"
        assert said in tvsnap.error("run", "terminal", stdin=data, status=2)
        with tvsnap.graph() as graph:
            (call,) = graph.out_edges(graph.roots()[0].hash)
        assert call.call.arguments == {"command": "echo x > f"}
        assert said in tvsnap.error("shell", call.next_state, stdin=data, status=2)

    @pytest.mark.parametrize("data", ["", "\n  \n\t\n"])
    def test_standard_input_without_a_call(self, tvsnap: CommandLine, data: str) -> None:
        for options in ([], ["--json"]):
            said = tvsnap.error("run", "terminal", *options, stdin=data, status=2)
            assert said.startswith("no call was given: give one with -c COMMAND, ")
            assert "tvsnap run --help" in said
        with tvsnap.graph() as graph:
            assert (graph.rollouts(), graph.roots()) == ([], [])
        assert tvsnap.error("run", "termnal", stdin=data, status=3) == 'image "termnal" not found; have: terminal'

    def test_a_prompt_that_is_left_at_once(self, tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cli.context.is_terminal", lambda: True)
        assert "Ctrl-D ends" in tvsnap("run", "terminal", stdin="").stdout
        assert "no call was given" in tvsnap.error("run", "terminal", "--json", stdin="", status=2)

    def test_a_private_branch_is_told(self, tvsnap: CommandLine) -> None:
        shown = tvsnap("run", "terminal", "-c", BUSY, "--timeout", "2").stdout
        assert "-- executed, timed out, 2.0 s" in shown
        assert "-- private: timed out after 2 s" in shown


class TestShow:
    def test_all_that_is_known(self, tvsnap: CommandLine) -> None:
        calls = tvsnap.rollout("echo x > f", "sleep 1000 &", "ls; echo done")
        state = calls[1]["state"]
        shown = tvsnap("show", state[:8]).stdout
        for part in (
            f"state {state}",
            "terminal (",
            "2 calls from its root",
            "of files, processes and shell",
            "process     sleep 1000",
            "1  " + calls[0]["state"][:8] + "  echo x > f",
            "-- exit 0, took ",
            "1 call made here",
            "= same    ls; echo done",
        ):
            assert part in shown, part
        data = tvsnap.json("show", state)
        assert data["state"] == state
        assert [edge["arguments"]["command"] for edge in data["lineage"]] == ["echo x > f", "sleep 1000 &"]
        assert data["snapshots"][0]["processes"] == ["sleep 1000"]
        assert data["calls"][0]["next_state"] == state

    def test_steps_up_and_the_root(self, tvsnap: CommandLine) -> None:
        calls = tvsnap.rollout("echo x > f", "echo y > f")
        assert calls[0]["state"] in tvsnap("show", calls[1]["state"][:8] + "~").stdout
        root = tvsnap("show", calls[1]["state"][:8] + "~2").stdout
        assert "0 calls from its root" in root
        assert "is only 1 step from its root" in tvsnap.error("show", calls[0]["state"][:8] + "~2", status=3)
        assert "is only 2 steps from its root" in tvsnap.error("show", calls[1]["state"][:8] + "~3", status=3)

    def test_long_output_is_cut_unless_asked_for(self, tvsnap: CommandLine) -> None:
        lines = "".join(f"{n}\\n" * 4 for n in range(1, 9))
        command = f"printf '{lines}'; echo last > f; cat f"
        state = tvsnap.rollout(command)[0]["state"]
        shown = tvsnap("show", state).stdout
        assert "… 13 more lines (--output)" in shown
        assert "last" not in shown.split("output\n")[-1]
        assert "8\nlast\n" in tvsnap("show", state, "--all").stdout
        assert tvsnap("show", state, "--output").stdout.splitlines() == [
            *(n for n in "12345678" for _ in "1234"),
            "last",
        ]

    def test_what_is_not_shared_comes_with_the_reason(self, tvsnap: CommandLine) -> None:
        state = tvsnap.json("run", "terminal", "-c", BUSY, "--timeout", "2")["state"]
        shown = tvsnap("show", state).stdout
        assert "private     timed out after 2 s" in shown
        assert "-- timed out" in shown
        assert "-- not shared: timed out after 2 s" in shown

    def test_what_the_load_of_the_machine_may_have_had_a_part_in(self, tvsnap: CommandLine) -> None:
        tvsnap.backend.command_duration = 1.2
        state = tvsnap.json("run", "terminal", "-c", "echo 1 > f", "--timeout", "2")["state"]
        why = "took 1.2 s of the 2 s that it had"
        assert f"-- under strain: it {why}" in tvsnap("show", state).stdout
        assert f"% {why}" in tvsnap("tree").stdout
        assert [edge["strain"] for edge in tvsnap.json("show", state)["lineage"]] == [why]

    def test_why_there_is_no_snapshot(self, tvsnap: CommandLine) -> None:
        tvsnap.backend.faults.fail("checkpoint", NotCheckpointable("a nested user namespace"))
        state = tvsnap.rollout("echo x > f")[0]["state"]
        assert "cannot be checkpointed (fake): a nested user namespace" in tvsnap("show", state).stdout
        assert tvsnap.json("show", state)["refusals"] == {"fake": "a nested user namespace"}


class TestDiff:
    def test_files_processes_and_shell(self, tvsnap: CommandLine) -> None:
        before, after = tvsnap.rollout(
            "echo 1 > kept; echo 1 > gone; echo 1 > changed; A=1",
            "rm gone; printf '1\\n2\\n' > changed; mkdir new; sleep 1000 & B=2; cd new",
        )
        names = [before["state"][:10], after["state"][:10]]
        shown = tvsnap("diff", *names).stdout
        for part in (
            "- /task/gone",
            "+ /task/new/",
            "M /task/changed  2 B -> 4 B",
            "sleep 1000",
            "+ var B",
            "- cwd: /task",
        ):
            assert part in shown, (part, shown)
        assert "kept" not in shown
        data = tvsnap.json("diff", *names, "--exit-code", status=4)
        assert data["differs"] is True
        assert {file["path"]: file["kind"] for file in data["files"]} == {
            "/task/gone": "-",
            "/task/new": "+",
            "/task/changed": "M",
        }
        assert [process["command"] for process in data["started"]] == ["sleep 1000"]

    def test_patches(self, tvsnap: CommandLine) -> None:
        first, second = tvsnap.rollout(
            "echo one > f; printf 'a\\0b' > bin", "echo two >> f; echo x > g; printf 'b\\0' > bin"
        )
        shown = tvsnap("diff", first["state"], second["state"], "-p").stdout
        assert "  @@ -1 +1,2 @@\n   one\n  +two\n" in shown
        assert "  --- /dev/null\n  +++ b/task/g\n" in shown
        assert "M /task/bin" in shown
        assert shown.count("+++ b") == 2

    def test_no_difference(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("echo x > f")[0]["state"]
        assert tvsnap("diff", state, state, "--exit-code").stdout == "no difference\n"

    def test_modes_and_kinds(self, tvsnap: CommandLine) -> None:
        first, second = tvsnap.rollout("echo x > f; echo x > g", "chmod 700 f; rm g; ln -s f g")
        shown = tvsnap("diff", first["state"], second["state"]).stdout
        assert "M /task/f  2 B, mode 0644 -> 0700" in shown
        assert "M /task/g  2 B, file became symlink" in shown


class TestExecAndShell:
    def test_exec_leaves_the_state_as_it_is(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("A=5; echo x > f")[0]["state"]
        assert tvsnap("exec", state[:8], "echo $A; echo y > f; cat f").stdout == "5\ny\n"
        assert tvsnap("exec", state[:8], "--", "cat", "f").stdout == "x\n"
        with tvsnap.graph() as graph:
            assert len(graph.tree()) == 2

    def test_exec_ends_as_the_command_does(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("echo x > f")[0]["state"]
        assert tvsnap("exec", state, "(exit 42)", status=42).stdout == ""
        assert tvsnap("exec", "--timeout", "2", state, BUSY, status=124).stdout == ""

    def test_exec_of_what_a_signal_ends(self, tvsnap: CommandLine) -> None:
        """As shells have it, and the help says."""
        assert exit_status(Outcome(b"", 137, 0.1, shell_lost=True)) == 137
        assert exit_status(Outcome(b"the terminal is in use", None, 0.0)) == 125
        assert "128 + N if signal N ended it" in " ".join(tvsnap("exec", "--help").stdout.split())

    def test_exec_options_come_first(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("echo x > f")[0]["state"]
        result = tvsnap("exec", "--json", state, "cat", "f")
        assert json.loads(result.stdout)["output"] == "x\n"
        assert "options go before STATE" in tvsnap.error("exec", state, "--json", "ls", status=2)

    def test_exec_prints_bytes_as_they_are_where_nobody_reads(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("echo x > f")[0]["state"]
        assert tvsnap("exec", state, r"printf 'a\033[1m\377\0b'").stdout_bytes == b"a\x1b[1m\xff\x00b"

    def test_shell_runs_the_lines_of_standard_input(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("cd /tmp; A=5")[0]["state"]
        result = tvsnap("shell", state[:8], stdin="pwd\nA=6\necho $A\n")
        assert result.stdout == "/tmp\n6\n"
        assert tvsnap("exec", state, "echo $A").stdout == "5\n"

    def test_shell_ends_with_the_status_of_the_last_line(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("cd /tmp; A=5")[0]["state"]
        tvsnap("shell", state, stdin="false\ntrue\n")
        tvsnap("shell", state, stdin="true\nfalse\n", status=1)
        tvsnap("shell", state, "--json", stdin="exit 7\n", status=7)
        tvsnap("shell", state, "--keep", stdin="echo x > f; false\n", status=1)

    def test_shell_keeps_a_branch(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("echo x > f")[0]["state"]
        kept = tvsnap("shell", state, "--keep", "--task", "look", stdin="echo y >> f\ncat f\n").stdout.splitlines()[-1]
        assert tvsnap("exec", kept[:8], "cat f").stdout == "x\ny\n"
        shown = tvsnap("show", kept).stdout
        assert "$ echo y >> f\n$ cat f\nx\ny\n" in shown
        assert "not shared" in shown
        assert kept[:8] in tvsnap("tree", "--task", "look").stdout
        assert tvsnap.json("run", "terminal", "-c", "echo x > f")["calls"][0]["source"] == "hit"

    def test_shell_has_nothing_to_keep(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("echo x > f")[0]["state"]
        result = tvsnap("shell", state, "--keep", stdin="cat f >/dev/null\n")
        assert "nothing was changed" in result.stderr
        assert tvsnap.json("shell", state, "--keep", stdin="") == {"state": state, "kept": state}

    def test_shell_cannot_keep_what_cannot_be_captured(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("echo x > f")[0]["state"]
        tvsnap.backend.faults.fail("checkpoint", NotCheckpointable("a nested user namespace"))
        assert "a nested user namespace" in tvsnap("shell", state, "--keep", stdin="echo y > f\n", status=1).stderr

    def test_a_state_that_nothing_leads_to_any_more(self, tvsnap: CommandLine) -> None:
        """Nobody is shown another one that is only like it."""
        run = tvsnap.json("run", "terminal", "--policy", "never", "-c", "echo $RANDOM > f", "-c", "echo x > g")
        state = run["state"]
        for verb in (["exec", state, "ls"], ["shell", state], ["diff", state, f"{state}~"]):
            message = tvsnap.error(*verb, status=1)
            assert message.startswith(
                f"state {state[:12]} can no longer be reached: it has no snapshot, and, made again"
            )
            assert "left something else behind" in message
        assert tvsnap("exec", f"{state}~2", "ls").stdout == ""


class TestVerify:
    def test_calls_that_return_the_same(self, tvsnap: CommandLine) -> None:
        tvsnap.rollout("echo x > f", "cat f", "ls")
        shown = tvsnap("verify").stdout
        assert shown == "3 calls of 3 made again, 3 came to the same\n"
        assert tvsnap.json("verify", "--sample", "1")["checked"] == 1

    def test_calls_that_do_not(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("echo x > f", "echo $RANDOM", task="chance")[0]["state"]
        data = tvsnap.json("verify", "--all", "--dry-run", status=4)
        assert [entry["arguments"]["command"] for entry in data["differences"]] == ["echo $RANDOM"]
        assert data["differences"][0]["output"] != data["differences"][0]["seen"]["output"]
        shown = tvsnap("verify", "--task", "chance", status=4).stdout
        assert shown.startswith(f"{state[:8]}  echo $RANDOM\n  printed ")
        assert "\n    -" in shown
        assert "\n    +" in shown
        assert "2 calls of 2 made again, 1 came to the same, 1 came to something else" in shown
        assert tvsnap("verify", "--all").stdout == "1 call of 1 made again, 1 came to the same\n"
        assert "not deterministic: a verification printed" in tvsnap("tree", "--all").stdout

    def test_calls_that_cannot_be_made_again(self, tvsnap: CommandLine) -> None:
        tvsnap.rollout("echo x > f")
        tvsnap.backend.faults.fail("run", InfrastructureError("no luck"), times=9)
        shown = tvsnap("verify", status=1).stdout
        assert "could not be made again: no luck" in shown
        assert "1 could not be made" in shown

    def test_an_interrupt_reports_what_was_done(self, tvsnap: CommandLine) -> None:
        from tvsnap.upkeep.verify import candidates, verify

        def interrupt() -> None:
            raise KeyboardInterrupt

        tvsnap.rollout(*(f"echo {number} > f" for number in range(20)))
        with open_cache(tvsnap.home, tvsnap.backend) as cache:
            report = verify(cache, candidates(cache.graph.tree()), progress=interrupt)
        assert report.interrupted
        assert 1 <= report.checked < 20
        assert not report.failures

    def test_nothing_recorded(self, tvsnap: CommandLine) -> None:
        assert tvsnap("verify").stdout == "0 calls of 0 made again, 0 came to the same\n"


class TestStats:
    def test_figures(self, tvsnap: CommandLine, rollouts: Path) -> None:
        for _ in range(2):
            tvsnap("replay", str(rollouts), "--image", "terminal", "--parallel", "1", "--policy", "eager")
        data = tvsnap.json("stats")
        assert (data["calls"], data["hits"], data["executed"], data["rollouts"], data["tasks"]) == (12, 8, 4, 4, 2)
        assert data["hit_rate"] == pytest.approx(8 / 12)
        assert data["by_depth"][0] == {"from": 1, "to": 1, "calls": 4, "answered": 3}
        assert data["snapshots"] == 3
        assert data["snapshot_bytes"] > 0
        assert data["saved_s"] == pytest.approx(
            data["answered_s"]
            - sum(data[f"{kind}_s"] for kind in ("hit_time", "waited", "fork_time", "replay_time", "checkpoint_time"))
        )
        shown = tvsnap("stats").stdout
        assert "66.7 % of the calls" in shown
        assert "75.0 %  of 4" in shown
        assert "none is alive" in shown
        assert max(map(len, map(str.rstrip, shown.splitlines()))) <= 80

    def test_nothing_yet(self, tvsnap: CommandLine) -> None:
        assert tvsnap.json("stats")["calls"] == 0
        assert "calls" in tvsnap("stats").stdout


class TestGc:
    def test_the_help_says_where_budgets_are_set(self, tvsnap: CommandLine) -> None:
        words = " ".join(tvsnap("gc", "--help").stdout.split())
        assert "--keep-bytes sets no budget" in words
        for option in ("--max-disk", "--max-snapshots", "--max-memory", "--max-sandboxes"):
            assert option in words
            for verb in ("replay", "run"):
                assert f"{option} " in tvsnap(verb, "--help").stdout

    def test_nothing_to_free(self, tvsnap: CommandLine) -> None:
        tvsnap.rollout("echo x > f")
        assert tvsnap("gc").stdout.startswith("nothing to free; snapshots now hold ")

    def test_what_the_disk_got_back(self, tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
        tvsnap.rollout("echo x > f")
        monkeypatch.setattr(type(tvsnap.backend), "reclaim", lambda self: 5 << 20)
        assert tvsnap.json("gc", "--dry-run")["returned_bytes"] is None
        assert tvsnap.json("gc")["returned_bytes"] == 5 << 20
        freed, what, left = tvsnap("gc").stdout.splitlines()[:3]
        assert (freed, what) == ("freed:", "  the space of what was deleted before, 5.0 MiB")
        assert left.startswith("snapshots now hold ")
        shown = tvsnap("gc", "--keep-bytes", "0").stdout
        assert " to keep within the limit, " in shown
        assert "5.0 MiB went back to the disk" in shown

    def test_rows_and_files_that_do_not_match(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("echo x > f", "echo y > f")[0]["state"]
        with tvsnap.graph() as graph:
            gone = graph.snapshots()[0]
        tvsnap.backend.delete_snapshot(gone.id)
        with tvsnap.graph() as graph:
            kept = graph.snapshots()[1]
            graph.drop_snapshot(kept.state, kept.backend)
        plan = tvsnap.json("gc", "--dry-run")
        assert (plan["rows_without_files"], plan["files_without_row"]) == ([gone.id], [kept.id])
        assert tvsnap.json("gc", "--dry-run") == plan, "a dry run changes nothing"
        shown = tvsnap("gc").stdout
        assert "1 row of a snapshot that is gone" in shown
        assert "1 snapshot unknown to the graph" in shown
        assert tvsnap.json("gc")["rows_without_files"] == []
        assert tvsnap.backend.snapshots() == []
        assert tvsnap("exec", state, "cat f").stdout == "x\n", "what is recorded stays"

    def test_dead_owners(self, tvsnap: CommandLine) -> None:
        owners = tvsnap.home / "run" / "owners"
        owners.mkdir(parents=True)
        (owners / "123-dead.lock").touch()
        from cli import context
        from tvsnap.upkeep.maintenance import plan_gc, run_gc

        with context.open_parts() as parts:
            found = plan_gc(parts.home, parts.graph, parts.backend)
            assert found.dead_owners == ("123-dead",)
            run_gc(parts.home, parts.graph, parts.backend, found)
        assert list(owners.iterdir()) == []

    def test_snapshots_of_a_live_process_are_left_alone(self, tvsnap: CommandLine) -> None:
        tvsnap.rollout("echo x > f")
        other = Owner(tvsnap.home)
        stray = f"{other.id}.stray"
        tvsnap.backend.kept[stray] = tvsnap.backend.kept[tvsnap.backend.snapshots()[0]]
        from cli import context
        from tvsnap.upkeep.maintenance import plan_gc

        try:
            with context.open_parts() as parts:
                assert plan_gc(parts.home, parts.graph, parts.backend).files_without_row == ()
        finally:
            other.close()
        assert tvsnap.json("gc", "-n")["files_without_row"] == [stray]

    def test_keeping_within_a_number_of_bytes(self, tvsnap: CommandLine) -> None:
        calls = tvsnap.rollout("sleep 9; echo x > f", "echo y > g", "echo z > h")
        with tvsnap.graph() as graph:
            sizes = {snapshot.state: snapshot.size for snapshot in graph.snapshots()}
        assert len(sizes) == 3
        costly = calls[0]["state"]
        data = tvsnap.json("gc", "--keep-bytes", str(sizes[costly]))
        assert len(data["evicted"]) == 2
        assert data["kept_bytes"] == sizes[costly]
        with tvsnap.graph() as graph:
            assert [snapshot.state for snapshot in graph.snapshots()] == [costly], "what is dear to rebuild stays"
        assert tvsnap("exec", calls[2]["state"], "cat f g h").stdout == "x\ny\nz\n"
        assert tvsnap.json("gc", "--keep-bytes", "0")["kept_bytes"] == 0

    @pytest.mark.usefixtures("proofs_at_once")
    def test_what_nothing_else_leads_to_goes_last(self, tvsnap: CommandLine) -> None:
        for _ in range(2):
            tvsnap("run", "terminal", "--policy", "never", "-c", "sleep 9; echo x > g")
        dear, last = tvsnap.rollout("sleep 9; echo x > g", "echo y > h")
        assert (dear["source"], last["source"]) == ("hit", "executed")
        with tvsnap.graph() as graph:
            sizes = {one.state: one.size for one in graph.snapshots()}
        assert sizes.keys() == {dear["state"], last["state"]}
        tvsnap("gc", "--keep-bytes", str(sizes[last["state"]]))
        with tvsnap.graph() as graph:
            assert [snapshot.state for snapshot in graph.snapshots()] == [last["state"]]
        assert tvsnap("exec", last["state"], "cat g h").stdout == "x\ny\n"

    def test_what_was_kept_by_hand_stays(self, tvsnap: CommandLine) -> None:
        (call,) = tvsnap.rollout("echo x > f")
        kept = tvsnap.json("shell", call["state"], "--keep", stdin="echo y > g\n")["kept"]
        shown = tvsnap("show", kept).stdout
        assert "kept by hand: only `tvsnap forget` deletes it" in shown
        tvsnap("gc", "--keep-bytes", "0")
        with tvsnap.graph() as graph:
            assert [(one.state, one.pinned) for one in graph.snapshots()] == [(kept, True)]
        assert tvsnap("exec", kept, "cat f g").stdout == "x\ny\n"
        tvsnap("forget", kept, "--yes")
        assert tvsnap.backend.snapshots() == []
        assert [entry["source"] for entry in tvsnap.rollout("echo x > f")] == ["executed"]

    @pytest.mark.parametrize(
        ("text", "size"), [("0", 0), ("10", 10), ("1k", 1024), ("1.5M", 1572864), ("2GiB", 2 << 30), ("1 TB", 1 << 40)]
    )
    def test_sizes(self, text: str, size: int) -> None:
        from cli.options import parse_size

        assert parse_size(text) == size


class TestDemo:
    def test_a_missing_image_is_built_and_json_stays_json(
        self, tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from cli import context, demo

        class Empty:
            def get(self, name: str) -> None:
                raise NotFound(f'image "{name}" not found')

        monkeypatch.setattr(context, "open_images", Empty)
        monkeypatch.setattr("cli.image_build.build", lambda name: print(f"built {name}"))
        demo.ensure_image(context.console(stderr=True))
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "is not there yet" in shown.err
        assert "built terminal" in shown.err
        demo.ensure_image(context.console())
        assert "built terminal" in capsys.readouterr().out

    def test_one_that_is_interrupted_leaves_the_one_before(
        self, tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def done(console: Any, salt: str, *, as_json: bool) -> bool:
            tvsnap("run", "terminal", "-c", "echo x > f", "--salt", salt)
            return True

        def interrupted(console: Any, salt: str, *, as_json: bool) -> bool:
            done(console, salt, as_json=as_json)
            raise KeyboardInterrupt

        def salts() -> list[str]:
            with tvsnap.graph() as graph:
                return [root.salt for root in graph.roots()]

        monkeypatch.setattr("cli.demo._demonstrate", done)
        tvsnap("demo")
        (first,) = salts()
        monkeypatch.setattr("cli.demo._demonstrate", interrupted)
        tvsnap("demo", status=130)
        assert salts() == [first]
        monkeypatch.setattr("cli.demo._demonstrate", done)
        tvsnap("demo")
        (second,) = salts()
        assert second != first


class TestForget:
    def test_a_state_and_what_came_of_it(self, tvsnap: CommandLine) -> None:
        calls = tvsnap.rollout("echo x > f", "echo y > f", "cat f")
        planned = tvsnap("forget", calls[1]["state"][:8], "--dry-run").stdout
        assert planned.startswith("would delete 1 state, 2 calls, 1 snapshot of ")
        assert "deleted 1 state, 2 calls" in tvsnap("forget", calls[1]["state"][:8], "--yes").stdout
        tvsnap.error("show", calls[1]["state"], status=3)
        with tvsnap.graph() as graph:
            assert {snapshot.id for snapshot in graph.snapshots()} == set(tvsnap.backend.snapshots())
        assert [call["source"] for call in tvsnap.rollout("echo x > f", "echo y > f")] == ["hit", "executed"]

    def test_a_task_spares_what_others_did_too(self, tvsnap: CommandLine) -> None:
        tvsnap.rollout("echo x > f", "echo 1 > g", task="one")
        tvsnap.rollout("echo x > f", "echo 2 > g", task="two")
        data = tvsnap.json("forget", "--task", "one", "--yes")
        assert (data["dry_run"], data["states"], data["calls"], data["rollouts"]) == (False, 1, 1, 1)
        assert [call["source"] for call in tvsnap.rollout("echo x > f", "echo 2 > g", task="two")] == ["hit", "hit"]

    def test_an_image(self, tvsnap: CommandLine) -> None:
        tvsnap.rollout("echo x > f")
        tvsnap("run", "terminal", "-c", "echo x > f", "--salt", "s")
        assert tvsnap.json("forget", "--image", "terminal", "--dry-run")["states"] == 4
        assert tvsnap.json("forget", "--image", "terminal", "--yes")["states"] == 4
        with tvsnap.graph() as graph:
            assert graph.tree() == []
        assert tvsnap.backend.snapshots() == []

    def test_without_a_person_it_says_what_stands_there_and_deletes_nothing(self, tvsnap: CommandLine) -> None:
        state = tvsnap.rollout("echo x > f", "echo y > f")[0]["state"]
        for more in ((), ("--json",)):
            assert tvsnap.error("forget", state, *more, status=2).startswith(
                "without a terminal to ask at, --yes is needed to delete 2 states, 2 calls, 2 snapshots of "
            )
        tvsnap("show", state)

    def test_it_asks_a_person(self, tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
        state = tvsnap.rollout("echo x > f")[0]["state"]
        monkeypatch.setattr("cli.context.asks", lambda: True)
        result = tvsnap("forget", state, stdin="n\n", status=1)
        assert "delete 1 state, 1 call, 1 snapshot" in result.stderr
        assert "nothing was done" in result.stderr
        tvsnap("show", state)
        tvsnap("forget", state, stdin="y\n")
        tvsnap.error("show", state, status=3)


def states_of(data: Any) -> list[str]:
    return [node["state"] for node in data["nodes"]]


class TestTree:
    def test_a_tree_that_is_longer_than_the_terminal_is_paged(
        self, tvsnap: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tvsnap.rollout("echo x > f", "echo y > f")
        paged: list[str] = []
        monkeypatch.setattr("cli.context.is_terminal", lambda: True)
        monkeypatch.setattr("pydoc.pager", paged.append)
        monkeypatch.setenv("LINES", "60")
        plain = tvsnap("tree").stdout
        assert "echo y > f" in plain
        assert not paged
        monkeypatch.setenv("LINES", "3")
        assert tvsnap("tree").stdout == ""
        assert paged == [plain]

    def test_folding_chains_branches_and_calls_that_changed_nothing(self, tvsnap: CommandLine) -> None:
        tvsnap.rollout("echo x > f", *(f"echo {n} > f" for n in range(12)), "ls", "cat f")
        for n in range(14):
            tvsnap.rollout("echo x > f", f"echo branch {n} > g")
        shown = tvsnap("tree").stdout
        assert "+ 2 calls that changed nothing" in shown
        assert "⋮ " in shown
        assert "more branches (" in shown
        assert max(map(len, shown.splitlines())) <= 80
        everything = tvsnap("tree", "--all").stdout
        assert "⋮" not in everything
        assert "more branches" not in everything
        assert "= cat f" in everything
        assert all(f"echo branch {n} > g" in everything for n in range(14))
        assert tvsnap("tree").stdout == shown, "the order is always the same"

    def test_a_part_of_it(self, tvsnap: CommandLine) -> None:
        one = tvsnap.rollout("echo x > f", "echo 1 > g", "echo 2 > g", task="one")
        two = tvsnap.rollout("echo x > f", "echo 3 > g", task="two")
        everything = states_of(tvsnap.json("tree"))
        assert len(everything) == 5
        assert states_of(tvsnap.json("tree", one[1]["state"][:8])) == [one[1]["state"], one[2]["state"]]
        assert states_of(tvsnap.json("tree", one[0]["state"], "--depth", "1")) == [
            one[0]["state"],
            one[1]["state"],
            two[1]["state"],
        ]
        assert set(everything) - set(states_of(tvsnap.json("tree", "--task", "two"))) == {
            one[1]["state"],
            one[2]["state"],
        }
        assert states_of(tvsnap.json("tree", "--image", "terminal")) == everything
        assert len(states_of(tvsnap.json("tree", "--depth", "0"))) == 1
        assert one[1]["state"][:8] in tvsnap("tree", one[1]["state"][:8]).stdout

    def test_what_is_not_shared(self, tvsnap: CommandLine) -> None:
        tvsnap("run", "terminal", "--timeout", "2", "-c", "echo x > f", "-c", BUSY, "-c", "echo y > f")
        shown = tvsnap("tree").stdout
        assert shown.count("! not shared: timed out after 2 s on a busy machine") == 1
        assert shown.count("◇ ") == 3, "two states and the legend"

    def test_commands_act_upon_no_terminal(self, tvsnap: CommandLine) -> None:
        tvsnap.rollout("echo '\x1b[31m\n[bold]x' > f")
        shown = tvsnap("tree").stdout
        assert "echo '^[[31m⏎[bold]x' > f" in shown
