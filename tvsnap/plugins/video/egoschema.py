"""Questions about videos in EgoSchema's format (arXiv 2308.09126), and images that hold their videos.

A folder has `questions.json` (a list of objects with `q_uid`, `question` and `option 0` to `option 4`), answers in
`subset_answers.json` (the number of the right option by `q_uid`), and `videos/Q_UID.mp4`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tvsnap import Image, ImageStore, UsageError

QUESTIONS, ANSWERS, VIDEOS = "questions.json", "subset_answers.json", "videos"
OPTIONS = 5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a video, with options of which one is right.

    Attributes:
        id: its `q_uid`, which is the name of its video, too.
        text: the question.
        options: the answers to choose from.
        answer: the place of the right one, from 0 on; None if it is not known.
        video: the video's file on this machine.
    """

    id: str
    text: str
    options: tuple[str, ...]
    answer: int | None
    video: Path

    @property
    def video_name(self) -> str:
        """The name by which `load_video_into_sandbox` loads the video in an image of `image_of`."""
        return self.video.name

    def asked(self) -> str:
        """Returns the question and its options, as an agent is asked."""
        return "\n".join([self.text, *(f"{number}: {option}" for number, option in enumerate(self.options))])

    def reward(self, answer: int | None) -> float:
        """Returns 1.0 for the right answer, and 0.0 for any other.

        Args:
            answer: the place of an option; None for no answer.

        Raises:
            UsageError: the right answer is not known.
        """
        if self.answer is None:
            raise UsageError(f"the answer to the question {self.id} is not known: it is not in {ANSWERS}")
        return float(answer == self.answer)


def read_questions(folder: str | Path) -> list[Question]:
    """Returns the questions of a folder whose videos are there, in the order of the file.

    Args:
        folder: see the module.

    Returns:
        The questions; those without a video are left out, because people download parts of EgoSchema.

    Raises:
        UsageError: a file is missing, or has something else in it, or there is no video at all.
    """
    folder = Path(folder)
    entries = _json(folder / QUESTIONS)
    answers = _json(folder / ANSWERS) if (folder / ANSWERS).exists() else {}
    if not isinstance(entries, list) or not isinstance(answers, dict):
        raise UsageError(f"{folder}: {QUESTIONS} must hold a list, and {ANSWERS} an object")
    questions = []
    for place, one in enumerate(entries):
        question = _question(one, answers, folder, f"{folder / QUESTIONS}, question {place}")
        if question.video.is_file():
            questions.append(question)
    if not questions:
        raise UsageError(f"{folder / VIDEOS} has none of the videos that {QUESTIONS} names")
    return questions


def image_of(store: ImageStore, questions: Sequence[Question], base: str = "video") -> Image:
    """Builds an image with the videos of some questions in /videos; it shares all else with the image that it is from.

    Args:
        store: the store of images.
        questions: one, or several whose rollouts are to begin at the same state.
        base: the image to start from, whose environment is `video`.

    Returns:
        The image: the same one whenever the videos are the same.

    Raises:
        UsageError: there are no questions.
        NotFound: there is no image `base`.
    """
    videos = {question.video_name: question.video for question in questions}
    if not videos:
        raise UsageError("there are no questions, so there is no video to build an image with")
    digest = hashlib.sha256("\n".join(sorted(videos)).encode()).hexdigest()[:12]
    name = Path(next(iter(videos))).stem if len(videos) == 1 else f"{len(videos)}-{digest}"
    with tempfile.TemporaryDirectory() as work:
        for video in videos.values():
            shutil.copyfile(video, Path(work, video.name))
        files = [{"source": file, "dest": f"/videos/{file}"} for file in sorted(videos)]
        described = {"name": f"{base}-{name.lower()}", "image": base, "files": files}
        Path(work, "image.yaml").write_text(yaml.safe_dump(described))
        return store.build(Path(work))


def _question(one: Any, answers: dict[str, Any], folder: Path, place: str) -> Question:
    names = ["q_uid", "question", *(f"option {number}" for number in range(OPTIONS))]
    if not isinstance(one, dict) or not all(isinstance(one.get(name), str) for name in names):
        raise UsageError(f"{place}: it needs texts with the keys {', '.join(names)}")
    if not _NAME.fullmatch(one["q_uid"]):
        raise UsageError(f"{place}: {one['q_uid']!r} cannot be the name of a video; take letters, digits, - and _")
    answer = answers.get(one["q_uid"])
    if answer is not None and (type(answer) is not int or not 0 <= answer < OPTIONS):
        place = f"{folder / ANSWERS}: the answer of {one['q_uid']}"
        raise UsageError(f"{place} must be a whole number from 0 to {OPTIONS - 1}, not {answer!r}")
    options = tuple(one[f"option {number}"] for number in range(OPTIONS))
    return Question(one["q_uid"], one["question"], options, answer, folder / VIDEOS / f"{one['q_uid']}.mp4")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{path} is missing; {QUESTIONS} and {VIDEOS}/ make a folder in EgoSchema's format") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
