"""Questions in EgoSchema's format, stories, and calls as the published agent writes them; without sandboxes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tvsnap import UsageError
from tvsnap.plugins.video import VideoEnvironment, egoschema, samples
from tvsnap.plugins.video.published import call_of


def told(**changes: Any) -> dict[str, Any]:
    options = {f"option {number}": f"it is {number}" for number in range(5)}
    return {"q_uid": "a-1", "google_drive_id": "", "question": "What is it?", **options, **changes}


def folder(path: Path, questions: Any, answers: Any = None, videos: tuple[str, ...] = ("a-1.mp4",)) -> Path:
    (path / "videos").mkdir()
    for video in videos:
        (path / "videos" / video).write_bytes(b"video")
    (path / "questions.json").write_text(json.dumps(questions))
    if answers is not None:
        (path / "subset_answers.json").write_text(json.dumps(answers))
    return path


def test_questions_are_read(tmp_path: Path) -> None:
    questions = [told(), told(q_uid="b-2"), told(q_uid="c-3")]
    read = egoschema.read_questions(folder(tmp_path, questions, {"a-1": 3}, ("a-1.mp4", "c-3.mp4")))
    assert [question.id for question in read] == ["a-1", "c-3"]  # there is no video of the other
    assert read[0].answer == 3
    assert read[0].asked().splitlines() == ["What is it?", *(f"{number}: it is {number}" for number in range(5))]
    assert (read[0].reward(3), read[0].reward(1), read[0].reward(None)) == (1.0, 0.0, 0.0)
    with pytest.raises(UsageError, match="the answer to the question c-3 is not known"):
        read[1].reward(0)


@pytest.mark.parametrize(
    ("questions", "answers", "reason"),
    [
        ({}, None, "must hold a list"),
        ([told(q_uid=7)], None, "question 0: it needs texts with the keys q_uid"),
        ([told(q_uid="../x")], None, "cannot be the name of a video"),
        ([told()], {"a-1": 9}, "must be a whole number from 0 to 4, not 9"),
        ([told()], {"a-1": True}, "must be a whole number from 0 to 4"),
        ([told(q_uid="z")], None, "has none of the videos"),
        ([], None, "has none of the videos"),
    ],
)
def test_what_is_no_question_is_told(tmp_path: Path, questions: Any, answers: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        egoschema.read_questions(folder(tmp_path, questions, answers))


def test_a_folder_without_questions_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"questions.json is missing; questions.json and videos/"):
        egoschema.read_questions(tmp_path)
    (tmp_path / "questions.json").write_text("{")
    with pytest.raises(UsageError, match=r"questions.json cannot be read"):
        egoschema.read_questions(tmp_path)


@pytest.mark.parametrize("seed", range(25))
def test_stories_have_one_right_answer(seed: int) -> None:
    story = samples.story(seed)
    assert story == samples.story(seed)
    assert len(set(story.options)) == 5
    assert len({scene.name for scene in story.scenes}) == len(story.scenes)
    right = story.options[story.answer]
    if "appears first" in story.question:
        assert right == story.scenes[0].name
    if "written" in story.question:
        assert right in [scene.sign for scene in story.scenes]


@pytest.mark.parametrize(
    ("tool", "inputs", "arguments"),
    [
        ("load_video_into_sandbox", "a.mp4", {"video_name": "a.mp4"}),
        ("preprocess", "", {}),
        ("object_memory_querying", "how many people?", {"question": "how many people?"}),
        ("segment_localization", "a door", {"description": "a door"}),
        ("caption_retrieval", "(0, 10)", {"start_segment_ID": 0, "end_segment_ID": 10}),
        ("visual_question_answering", "('what?', 5)", {"question": "what?", "segment_ID": 5}),
        ("visual_question_answering", "('what?', '5')", {"question": "what?", "segment_ID": 5}),
        ("visual_question_answering", "('what?', 5)\n", {"question": "what?", "segment_ID": 5}),
        ("load_video_into_sandbox", "'a.mp4'", {"video_name": "a.mp4"}),
        ("load_video_into_sandbox", " a.mp4\n", {"video_name": "a.mp4"}),
        ("load_video_into_sandbox", '"a.mp4"\n', {"video_name": "a.mp4"}),
        ("segment_localization", "'the man's \\'red\\' door'", {"description": "the man's \\'red\\' door"}),
        ("segment_localization", "'the \\'red\\' door'", {"description": "the 'red' door"}),
        ("segment_localization", "'a' or 'b'", {"description": "'a' or 'b'"}),
        ("segment_localization", "it's a door'", {"description": "it's a door'"}),
        ("preprocess", "a.mp4", {}),
    ],
)
def test_calls_of_the_published_agent(tool: str, inputs: str, arguments: dict[str, Any]) -> None:
    assert call_of(tool, inputs) == (tool, arguments)
    assert set(arguments) == set(VideoEnvironment().tools[tool].parameters["properties"])


@pytest.mark.parametrize(
    ("tool", "inputs", "reason"),
    [
        ("fly", "", "unknown tool 'fly'; have: load_video"),
        ("caption_retrieval", "0, 10, 20", "takes \\(start_segment_ID, end_segment_ID\\)"),
        ("caption_retrieval", "(0", "takes"),
        ("caption_retrieval", "('a', 2)", "start_segment_ID must be a whole number, not 'a'"),
        ("caption_retrieval", "(1.5, 2)", "must be a whole number"),
        ("visual_question_answering", "__import__('os')", "takes"),
        ("visual_question_answering", "(None, 5)", "question must be a text in quotes, not None"),
        ("visual_question_answering", "(b'what', 5)", "question must be a text in quotes, not b'what'"),
        ("visual_question_answering", "(('what',), 5)", "question must be a text in quotes"),
        ("visual_question_answering", "('what', None)", "segment_ID must be a whole number, not None"),
        ("visual_question_answering", f"('what', '{'9' * 5000}')", "segment_ID must be a whole number"),
        ("segment_localization", None, "inputs must be one text, such as the agent writes, not None"),
        ("segment_localization", b"a door", "inputs must be one text"),
        ("visual_question_answering", ("what", 5), "inputs must be one text"),
        (None, "", "unknown tool None"),
        ([], "", "unknown tool"),
    ],
)
def test_what_is_no_call_is_told(tool: Any, inputs: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        call_of(tool, inputs)
