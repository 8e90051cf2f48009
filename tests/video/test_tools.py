"""The tools of videos, in real sandboxes: what they say of videos of which everything is known."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.video.agents import play
from tests.video.conftest import STORIES, Videos
from tvsnap import Cache, Image, InfrastructureError, Rollout, Sandbox, ToolResult
from tvsnap.environments.base import Environment
from tvsnap.plugins.video import Answer, InSandbox, Models, Prompt, VideoEnvironment, WordLlama
from tvsnap.testing import EnvironmentConformance

DAMAGED = "the memory of the video is damaged: load and preprocess the video again\n"
LOAD, PREPROCESS = "load_video_into_sandbox", "preprocess"
READS: list[tuple[str, dict[str, Any]]] = [
    ("caption_retrieval", {"start_segment_ID": 0, "end_segment_ID": 1}),
    ("segment_localization", {"description": "x"}),
    ("object_memory_querying", {"question": "x"}),
    ("visual_question_answering", {"question": "x", "segment_ID": 0}),
]


@pytest.fixture
def cache(videos: Videos) -> Iterator[Cache]:
    with Cache(videos.home, environments=[VideoEnvironment()]) as cache:
        yield cache


@contextmanager
def begun(videos: Videos, models: Models) -> Iterator[tuple[Cache, Rollout]]:
    """A block with a rollout whose tools ask some models, and its cache."""
    with Cache(videos.home, environments=[VideoEnvironment(models)]) as cache, cache.rollout(videos.image) as rollout:
        yield cache, rollout


def loaded(rollout: Rollout, videos: Videos, place: int = 0) -> str:
    """Loads and preprocesses a video; returns what the second tool said."""
    said = rollout.call(LOAD, {"video_name": videos.questions[place].video_name})
    assert said.exit_code == 0, said.output
    said = rollout.call(PREPROCESS, {}, timeout=600)
    assert said.exit_code == 0, said.output
    return said.output


@pytest.mark.parametrize("place", range(len(STORIES)))
def test_what_is_in_a_video_is_found(cache: Cache, videos: Videos, place: int) -> None:
    story = STORIES[place]
    with cache.rollout(videos.image) as rollout:
        assert loaded(rollout, videos, place) == "Preprocessing completed: 8 segments, 4 objects\n"
        captions = rollout.call("caption_retrieval", {"start_segment_ID": 0, "end_segment_ID": 14}).output
        assert captions.startswith("There are 8 segments in total, ranging from 0 to 7. {0: ")
        for number, scene in enumerate(story.scenes):
            told = captions[captions.index(f"{2 * number}: ") :]
            assert f"a {scene.name} {scene.motion}" in told
            assert scene.sign in told
            seen = rollout.call("object_memory_querying", {"question": f"When is the {scene.name} to be seen?"}).output
            assert f"There is 1 {scene.name}: object" in seen
            assert f"in segments {2 * number}-{2 * number + 1}." in seen
        none = rollout.call("object_memory_querying", {"question": "Is there an orange circle?"}).output
        assert "orange" not in none


@pytest.mark.parametrize("place", range(len(STORIES)))
def test_an_agent_finds_the_answer(cache: Cache, videos: Videos, place: int) -> None:
    question = videos.questions[place]
    with cache.rollout(videos.image) as rollout:
        played = play(rollout, question, seed=0, spread=0.0)
    assert not played.guessed
    assert question.reward(played.answer) == 1.0


def test_tools_say_what_is_to_be_done_first(cache: Cache, videos: Videos) -> None:
    with cache.rollout(videos.image) as rollout:
        for name, arguments in [*READS, (PREPROCESS, {})]:
            early = rollout.call(name, arguments)
            assert (early.exit_code, early.output) == (1, "no video is loaded: call load_video_into_sandbox first\n")
        rollout.call(LOAD, {"video_name": videos.questions[0].video_name})
        for name, arguments in READS:
            early = rollout.call(name, arguments)
            assert (early.exit_code, early.output) == (1, "the video is not preprocessed: call preprocess first\n")


def test_a_tool_that_lacks_a_video_is_answered_as_any_other(cache: Cache, videos: Videos) -> None:
    """What it says is true each time in that state; a failure of a model is not, and is not recorded."""
    said = []
    for _ in range(2):
        with cache.rollout(videos.image, salt="without a video") as rollout:
            said.append([rollout.call(name, arguments) for name, arguments in [*READS, (PREPROCESS, {})]])
    assert [one.source for one in said[1]] == ["hit"] * len(said[1])
    assert [(one.output, one.exit_code) for one in said[1]] == [(one.output, one.exit_code) for one in said[0]]


def test_things_are_told_in_right_english(cache: Cache, videos: Videos) -> None:
    named = "from tvsnap_video.watching import with_article; print([with_article(name) for name in sys.argv[1:]])"
    program = f"import sys; sys.path.insert(0, '/run/tvsnap/video.pyz'); {named}"
    with cache.rollout(videos.image) as rollout:
        said = rollout.call("exec", {"command": f'python3 -B -c "{program}" "orange circle" "red square"'}).output
    assert said == "['an orange circle', 'a red square']\n"


def test_another_video_takes_the_place_of_the_first(cache: Cache, videos: Videos) -> None:
    asked = {"question": "which objects are in the video?"}
    with cache.rollout(videos.image) as rollout:
        loaded(rollout, videos, 0)
        first = rollout.call("object_memory_querying", asked).output
        rollout.call(LOAD, {"video_name": videos.questions[1].video_name})
        assert "not preprocessed" in rollout.call("object_memory_querying", asked).output
        rollout.call(PREPROCESS, {}, timeout=600)
        assert rollout.call("object_memory_querying", asked).output != first
        rollout.call("exec", {"command": f"cp {videos.questions[0].video_name} {videos.questions[1].video_name}"})


def test_the_four_tools_leave_the_state_as_it_was(cache: Cache, videos: Videos) -> None:
    with cache.rollout(videos.image) as rollout:
        loaded(rollout, videos)
        state = rollout.state
        for name, arguments in (
            ("caption_retrieval", {"start_segment_ID": 1, "end_segment_ID": 3}),
            ("segment_localization", {"description": "a number that somebody says"}),
            ("object_memory_querying", {"question": "how many circles are there?"}),
            ("visual_question_answering", {"question": "what is written there?", "segment_ID": 2}),
        ):
            assert rollout.call(name, arguments).exit_code == 0
            assert rollout.state == state


def test_ids_out_of_range_are_told(cache: Cache, videos: Videos) -> None:
    with cache.rollout(videos.image) as rollout:
        loaded(rollout, videos)
        far = rollout.call("visual_question_answering", {"question": "x", "segment_ID": 8})
        assert (far.exit_code, far.output) == (1, "Segment ID 8 not in range 0-7.\n")
        none = rollout.call("caption_retrieval", {"start_segment_ID": 8, "end_segment_ID": 9})
        assert none.output.endswith("Invalid start and end segment IDs!\n")


def test_a_memory_that_was_damaged_is_told(cache: Cache, videos: Videos) -> None:
    with cache.rollout(videos.image) as rollout:
        loaded(rollout, videos)
        rollout.call("exec", {"command": "printf damaged > /var/lib/tvsnap-video/memory.sqlite"})
        said = rollout.call("caption_retrieval", {"start_segment_ID": 0, "end_segment_ID": 1})
        assert said.exit_code == 1
        assert said.output == DAMAGED
        rollout.call("exec", {"command": "cd /var/lib/tvsnap-video; rm memory.sqlite; mkfifo memory.sqlite"})
        said = rollout.call("caption_retrieval", {"start_segment_ID": 0, "end_segment_ID": 1})
        assert (said.exit_code, said.output) == (1, DAMAGED)
        rollout.call("exec", {"command": "rm -r /var/lib/tvsnap-video"})
        said = rollout.call(PREPROCESS, {})
        assert (said.exit_code, said.output) == (1, "no video is loaded: call load_video_into_sandbox first\n")
        loaded(rollout, videos)  # and then it is sound again
        assert rollout.call("caption_retrieval", {"start_segment_ID": 0, "end_segment_ID": 1}).exit_code == 0


@pytest.mark.parametrize(
    "damage",
    [
        "rm memory.sqlite; mkdir -p memory.sqlite/x",
        "mkdir -p memory.unfinished.sqlite/x answer.json/x request.json/x work/x",
        "rm -r frames; mkdir frames; mkdir frames/000000.jpg",
        "rm -r frames; touch frames",
        "rm -r frames; ln -s /etc frames",
        "cd ..; rm -r tvsnap-video; touch tvsnap-video",
        "rm memory.sqlite; ln -s nowhere memory.sqlite",
    ],
)
def test_load_makes_a_memory_anew(cache: Cache, videos: Videos, damage: str) -> None:
    with cache.rollout(videos.image) as rollout:
        loaded(rollout, videos)
        assert rollout.call("exec", {"command": f"cd /var/lib/tvsnap-video; {damage}"}).exit_code == 0
        for name, arguments in READS:
            said = rollout.call(name, arguments)
            assert said.exit_code in (0, 1)
            assert "Error" not in said.output
        loaded(rollout, videos)
        assert rollout.call("exec", {"command": "ls /var/lib/tvsnap-video /etc/passwd"}).output.split() == [
            "/etc/passwd",
            "/var/lib/tvsnap-video:",
            "frames",
            "memory.sqlite",
        ]
        assert [rollout.call(name, arguments).exit_code for name, arguments in READS] == [0] * len(READS)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE Segments SET caption = zeroblob(9)",
        "UPDATE Segments SET caption = hex(zeroblob(15000000))",
        "DELETE FROM Video",
        "DROP TABLE Segments",
        "UPDATE Video SET value = 'x'",
        "UPDATE Video SET value = 7",
        "UPDATE Video SET value = NULL",
        "UPDATE Video SET value = '[[7]]'",
        "UPDATE Video SET value = '1e999' WHERE name = 'segments'",
        "UPDATE Video SET value = '0' WHERE name = 'segments'",
        "UPDATE Video SET value = '\"x\"' WHERE name = 'frames'",
    ],
)
def test_rows_that_were_changed_are_told_in_words(cache: Cache, videos: Videos, change: str) -> None:
    with cache.rollout(videos.image) as rollout:
        loaded(rollout, videos)
        script = (
            "import sqlite3; memory = sqlite3.connect('/var/lib/tvsnap-video/memory.sqlite'); "
            f"memory.execute({change!r}); memory.commit()"
        )
        rollout.call("write_file", {"path": "/tmp/change.py", "content": script})
        assert rollout.call("exec", {"command": "python3 /tmp/change.py"}).exit_code == 0
        said = rollout.call(*READS[0])
        allowed = [DAMAGED] + ["the video is not preprocessed: call preprocess first\n"] * ("Video" in change)
        assert said.exit_code == 1
        assert said.output in allowed
        if "Video" in change and "WHERE" not in change:
            again = rollout.call(PREPROCESS, {}, timeout=600)
            assert (again.exit_code, again.output) == (1, DAMAGED)


def test_vectors_and_objects_that_were_changed_are_told_in_words(cache: Cache, videos: Videos) -> None:
    changes = (
        ("segment_localization", {"description": "x"}, "UPDATE Vectors SET vector = 'x'"),
        ("segment_localization", {"description": "x"}, "UPDATE Vectors SET segment_id = segment_id + 100"),
        ("object_memory_querying", {"question": "x"}, "UPDATE Objects SET category = zeroblob(3)"),
        ("object_memory_querying", {"question": "x"}, "UPDATE Objects SET category = hex(zeroblob(15000000))"),
    )
    for name, arguments, change in changes:
        with cache.rollout(videos.image) as rollout:
            loaded(rollout, videos)
            script = (
                "import sqlite3; memory = sqlite3.connect('/var/lib/tvsnap-video/memory.sqlite'); "
                f"memory.execute({change!r}); memory.commit()"
            )
            rollout.call("write_file", {"path": "/tmp/change.py", "content": script})
            assert rollout.call("exec", {"command": "python3 /tmp/change.py"}).exit_code == 0
            said = rollout.call(name, arguments)
            assert (said.exit_code, said.output) == (1, DAMAGED), change


def test_a_program_that_ends_without_an_answer_is_told_in_words(cache: Cache, videos: Videos) -> None:
    for body, of_load in (
        ("exit 0", "the program of the video tools gave no answer\n"),
        ("echo 'TypeError: x' >&2; exit 3", "the program of the video tools ended with status 3\n"),
        ('echo \'{"failed": "\\ud800"}\'', "?\n"),
    ):
        with cache.rollout(videos.image) as rollout:
            loaded(rollout, videos)
            rollout.call("write_file", {"path": "/tmp/x", "content": f"#!/bin/bash\n{body}\n"})
            rollout.call("exec", {"command": "chmod +x /tmp/x; rm /usr/bin/python3; cp /tmp/x /usr/bin/python3"})
            for name, arguments in ((PREPROCESS, {}), *READS):
                said = rollout.call(name, arguments)
                assert said.exit_code == 1
                assert said.output == (DAMAGED if body == "exit 0" else of_load)
            assert rollout.call(LOAD, {"video_name": videos.questions[0].video_name}).output == of_load


@pytest.mark.parametrize(
    "answer",
    [
        "[]",
        "7",
        "[" * 100_000,
        '{"total": 1e999, "frames": -5, "segments": []}',
        '{"total": 0, "frames": 0, "segments": [], "objects": []}',
        '{"total": 3, "frames": 2, "segments": [{}], "objects": [{"object_id": 1, "category": "", "segments": ["x"]}]}',
        '{"failed": 7}',
    ],
)
def test_what_an_agent_answers_in_place_of_the_program_is_no_error_of_the_host(
    cache: Cache, videos: Videos, answer: str
) -> None:
    with cache.rollout(videos.image) as rollout:
        rollout.call("write_file", {"path": "/tmp/answer", "content": answer})
        rollout.call(
            "exec",
            {"command": "cd /usr/bin; printf '#!/bin/bash\\ncat /tmp/answer\\n' > x; mv x python3; chmod +x python3"},
        )
        for name, arguments in READS:
            said = rollout.call(name, arguments)
            assert said.exit_code == 1
            assert said.output == DAMAGED


def test_a_call_that_takes_too_long_is_cut(cache: Cache, videos: Videos) -> None:
    with cache.rollout(videos.image) as rollout:
        rollout.call(LOAD, {"video_name": videos.questions[0].video_name})
        cut = rollout.call(PREPROCESS, {}, timeout=0.3)
        assert cut.timed_out
        assert cut.exit_code is None
        cut = rollout.call(PREPROCESS, {}, timeout=2.0)
        assert cut.timed_out
        assert loaded(rollout, videos)
        left = rollout.call("exec", {"command": "ls /var/lib/tvsnap-video"}).output
        assert left.split() == ["frames", "memory.sqlite"]


def test_random_histories_are_the_same_with_and_without_the_cache(videos: Videos) -> None:
    """Cached equals fresh: what a rollout is shown does not depend on what others did before."""
    environment = VideoEnvironment()
    for seed in range(4):
        shown = []
        for use_cache in (False, True, True):
            with (
                Cache(videos.home, environments=[environment], use_cache=use_cache) as cache,
                cache.rollout(videos.image) as rollout,
            ):
                shown.append([(said.output, said.exit_code) for said in _history(rollout, videos, seed)])
        assert shown[0] == shown[1] == shown[2]


def _history(rollout: Rollout, videos: Videos, seed: int) -> Iterator[ToolResult]:
    chance = random.Random(seed)
    names = [question.video_name for question in videos.questions]
    for _ in range(10):
        kind = chance.randrange(8)
        if kind == 0:
            yield rollout.call(LOAD, {"video_name": chance.choice([*names, "none.mp4"])})
        elif kind <= 2:
            yield rollout.call(PREPROCESS, {}, timeout=600)
        elif kind == 3:
            yield rollout.call(
                "exec", {"command": chance.choice([f"rm -f {names[0]}", f"mv {names[0]} x; mv x {names[0]}"])}
            )
        elif kind == 4:
            yield rollout.call("segment_localization", {"description": chance.choice(["a red circle", "a number"])})
        elif kind == 5:
            yield rollout.call("object_memory_querying", {"question": "which objects are there?"})
        elif kind == 6:
            first = chance.randrange(6)
            yield rollout.call("caption_retrieval", {"start_segment_ID": first, "end_segment_ID": first + 2})
        else:
            yield rollout.call(
                "visual_question_answering", {"question": "who speaks?", "segment_ID": chance.randrange(9)}
            )


@dataclass
class Recorder:
    """A model on the host that answers from the number of pictures it is shown, and fails as often as it is told."""

    identity: str = "recorder 1"
    failures: int = 0
    asked: list[Prompt] = field(default_factory=list)

    def ask(self, prompts: Sequence[Prompt], *, sandbox: Sandbox | None, seconds: float) -> list[Answer]:
        self.asked += prompts
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the model is away")
        sizes = [len(prompt.pictures) for prompt in prompts]
        return [Answer(f"{size} pictures", {"tokens": 100.0, "usd": 0.002}) for size in sizes]


def test_a_model_on_the_host_is_asked_once_for_all_rollouts(videos: Videos) -> None:
    model = Recorder()
    models = Models(captioner=model, answerer=model)
    with Cache(videos.home, environments=[VideoEnvironment(models)]) as cache:
        paid = cache.stats().saved_cost.get("usd", 0.0)
        for turn in range(2):
            with cache.rollout(videos.image) as rollout:
                loaded(rollout, videos)
                told = rollout.call("caption_retrieval", {"start_segment_ID": 0, "end_segment_ID": 1}).output
                assert "{0: '4 pictures', 1: '4 pictures'}" in told
                asked = {"question": "what happens?", "segment_ID": 3}
                said = rollout.call("visual_question_answering", asked)
                assert said.output == "4 pictures\n"
                assert said.cost["tokens"] == 100
                assert said.source == ("hit" if turn else "executed")
        assert len(model.asked) == 8 + 1
        assert all(picture.startswith(b"\xff\xd8") for prompt in model.asked for picture in prompt.pictures)
        assert cache.stats().saved_cost["usd"] - paid == pytest.approx(9 * 0.002)


def test_a_failure_of_a_model_is_never_an_answer(videos: Videos) -> None:
    model = Recorder("recorder that fails", failures=2)
    with begun(videos, Models(captioner=model, answerer=model)) as (_, rollout):
        rollout.call(LOAD, {"video_name": videos.questions[0].video_name})
        state = rollout.state
        with pytest.raises(
            InfrastructureError, match="'recorder that fails' failed: ConnectionError: the model is away"
        ):
            rollout.call(PREPROCESS, {}, timeout=600)
        assert rollout.state == state
        # What the call had already done in its sandbox is not there.
        assert rollout.call("exec", {"command": "ls /var/lib/tvsnap-video"}).output == "memory.sqlite\n"
        with pytest.raises(InfrastructureError):
            rollout.call(PREPROCESS, {}, timeout=600)
        assert rollout.call(PREPROCESS, {}, timeout=600).exit_code == 0
        model.failures = 1
        asked = {"question": "what happens?", "segment_ID": 3}
        with pytest.raises(InfrastructureError):
            rollout.call("visual_question_answering", asked)
        assert rollout.call("visual_question_answering", asked).output == "4 pictures\n"


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([], "must give a text for each of 1 prompts"),
        ([Answer("  ")], "must give a text"),
        ([Answer("yes", {"usd": float("nan")})], "a cost that is no number"),
        ([Answer("\ud800")], "half of a surrogate pair"),
        (["yes"], "must give a text"),
        (None, "failed: TypeError"),
    ],
)
def test_what_is_no_answer_is_a_failure(videos: Videos, answers: Any, reason: str) -> None:
    class Wrong(Recorder):
        def ask(self, prompts: Sequence[Prompt], *, sandbox: Sandbox | None, seconds: float) -> list[Answer]:
            made: list[Answer] = answers
            return made

    with begun(videos, Models(answerer=Wrong("wrong"))) as (_, rollout):
        loaded(rollout, videos)
        with pytest.raises(InfrastructureError, match=reason):
            rollout.call("visual_question_answering", {"question": "what?", "segment_ID": 0})


def test_models_are_part_of_a_calls_key(videos: Videos) -> None:
    roots = set()
    for identity in ("one", "two"):
        with begun(videos, Models(answerer=Recorder(identity))) as (_, rollout):
            roots.add(rollout.state)
            loaded(rollout, videos)
            asked = {"question": "what happens?", "segment_ID": 0}
            assert rollout.call("visual_question_answering", asked).source == "executed"
    assert len(roots) == 2


def test_a_model_in_the_sandbox(videos: Videos) -> None:
    model = InSandbox(
        "python3 -c 'import json, os, sys; asked = json.load(sys.stdin); print(json.dumps([str([os.path.getsize(path) "
        '> 0 for path in one["pictures"]]) for one in asked]))\'',
        "looks at pictures, version 1",
        user="nobody",
    )
    with begun(videos, Models(answerer=model)) as (_, rollout):
        loaded(rollout, videos)
        state = rollout.state
        said = rollout.call("visual_question_answering", {"question": "what?", "segment_ID": 0})
        assert said.output == "[True, True, True, True]\n"
        assert rollout.call("exec", {"command": "ls -A /tmp"}).output == ""
        assert rollout.state == state
    failing = InSandbox("echo no weights >&2; exit 3", "fails")
    with begun(videos, Models(answerer=failing)) as (_, rollout):
        loaded(rollout, videos)
        with pytest.raises(InfrastructureError, match=r"status 3.*no weights"):
            rollout.call("visual_question_answering", {"question": "what?", "segment_ID": 0})


def test_a_reasoner_writes_queries(videos: Videos) -> None:
    queries = [
        "```sql\nSELECT COUNT(DISTINCT object_id) FROM Objects;\n```",
        "DELETE FROM Objects",
        "SELECT * FROM nowhere",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
    ]

    class Reasoner(Recorder):
        def ask(self, prompts: Sequence[Prompt], *, sandbox: Sandbox | None, seconds: float) -> list[Answer]:
            self.asked += prompts
            if "Write one SELECT" in prompts[0].text:
                return [Answer(queries.pop(0))]
            return [Answer(prompts[0].text.partition("Its result: ")[2].partition("\n")[0])]

    with begun(videos, Models(reasoner=Reasoner())) as (_, rollout):
        loaded(rollout, videos)
        answers = [
            rollout.call("object_memory_querying", {"question": f"{number}: how many objects?"}).output
            for number in range(4)
        ]
    assert answers[0] == "{'rows': [[4]], 'more': False}\n"
    assert "not authorized" in answers[1]
    assert "no such table" in answers[2]
    assert "interrupted" in answers[3]


class TestConformance(EnvironmentConformance):
    """The suite that other packages hold their environments to."""

    environment: ClassVar[Environment] = VideoEnvironment(Models(embedder=WordLlama()))
    histories = (
        (
            (LOAD, {"video_name": f"{STORIES[0].id}.mp4"}),
            (PREPROCESS, {}),
            ("segment_localization", {"description": STORIES[0].question}),
            ("caption_retrieval", {"start_segment_ID": 0, "end_segment_ID": 3}),
            ("object_memory_querying", {"question": "how many triangles are there?"}),
            ("visual_question_answering", {"question": STORIES[0].question, "segment_ID": 2}),
            ("bash", {"command": "cd /tmp; ls"}),
            ("exec", {"command": "ls /videos"}),
            ("exec_all", {"commands": [{"command": "ls /videos"}]}),
            ("write_file", {"path": "g", "content": "text\n"}),
            ("read_file", {"path": "g"}),
            ("keys", {"keys": "echo hi<Enter>", "wait": 0.5}),
            ("screen", {}),
        ),
    )

    @pytest.fixture(scope="class")
    @classmethod
    def home(cls, tvsnap_home: Path) -> Path:
        return tvsnap_home

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls, videos: Videos) -> Image:
        return videos.image
