"""Videos of which everything is known, with questions whose answers are known, in EgoSchema's format.

FFmpeg makes them inside a sandbox: text, moving shapes, cuts between scenes, and sentences that a speech synthesiser
speaks. Tools have to decode, read, listen and look to answer.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvsnap import Cache, Image, InfrastructureError
from tvsnap.plugins.video.egoschema import ANSWERS, OPTIONS, QUESTIONS, VIDEOS, Question, read_questions

WIDTH, HEIGHT = 640, 360
_TIMEOUT = 900.0
_COLOURS = {
    "red": (214, 28, 28),
    "yellow": (230, 215, 20),
    "green": (24, 150, 40),
    "blue": (28, 60, 215),
    "purple": (150, 30, 190),
}
_SHAPES = ("circle", "square", "triangle")
_BACKGROUNDS = ("0xf4f4f4", "0xd8d8d8", "0x404040", "0x181818")
_SIGNS = ("STATION", "HARBOUR", "MARKET", "LIBRARY", "BAKERY", "MUSEUM", "SCHOOL", "GARDEN", "THEATRE", "HOSPITAL")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "nine", "eleven", "twelve", "twenty")
_MOVES = {
    "moves to the right": ((30, 190), (500, 190)),
    "moves to the left": ((500, 190), (30, 190)),
    "moves down": ((280, 60), (280, 260)),
    "moves up": ((280, 260), (280, 60)),
    "stands still": ((280, 170), (280, 170)),
}
_SENTENCES = (
    "the train leaves at {number} in the morning",
    "there are {number} people in the house",
    "we need {number} more apples for the kitchen",
    "it is {number} miles from here to the river",
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A scene of a video: what is to be seen and heard in it."""

    seconds: int
    thing: tuple[str, str]
    """Colour and shape."""
    motion: str
    background: str
    sign: str = ""
    sentence: str = ""

    @property
    def name(self) -> str:
        """The name of the thing."""
        return " ".join(self.thing)

    def described(self) -> dict[str, Any]:
        """Returns the scene as the program inside takes it."""
        colour, shape = self.thing
        start, end = _MOVES[self.motion]
        moving = {"shape": shape, "colour": _COLOURS[colour], "size": 90, "start": start, "end": end}
        return {
            "seconds": self.seconds,
            "background": self.background,
            "text": self.sign,
            "speech": self.sentence,
            "shapes": [moving],
        }


@dataclass(frozen=True, slots=True)
class Story:
    """A video, and a question about it.

    Attributes:
        id: the question's id.
        scenes: follow each other.
        question: the text.
        options: the answers to choose from.
        answer: the place of the right one.
    """

    id: str
    scenes: tuple[Scene, ...]
    question: str
    options: tuple[str, ...]
    answer: int


def story(seed: int, scenes: int = 5, seconds: int = 6) -> Story:
    """Returns a story that chance makes of a seed: the same one for the same arguments.

    Args:
        seed: any number; its rest by five chooses the kind of question.
        scenes: the number of scenes, from 3 to 10.
        seconds: the length of each scene.
    """
    chance = random.Random(seed)
    things = chance.sample([(colour, shape) for colour in _COLOURS for shape in _SHAPES], scenes)
    signs, numbers = chance.sample(_SIGNS, len(_SIGNS)), chance.sample(_NUMBERS, len(_NUMBERS))
    sentences = chance.sample(_SENTENCES, len(_SENTENCES))
    story_scenes = []
    for number, thing in enumerate(things):
        speech = sentences[number // 2 % len(sentences)].format(number=numbers[number]) if number % 2 else ""
        sign = "" if speech else signs[number]
        background = chance.choice(_BACKGROUNDS)
        story_scenes.append(Scene(seconds, thing, chance.choice(list(_MOVES)), background, sign, speech))
    kind = (_sign, _number, _motion, _first, _count)[seed % 5]
    question, right, others = kind(story_scenes, chance)
    options = [right, *chance.sample([other for other in others if other != right], OPTIONS - 1)]
    chance.shuffle(options)
    return Story(
        f"sample-{seed:04d}-{scenes}x{seconds}", tuple(story_scenes), question, tuple(options), options.index(right)
    )


def make(cache: Cache, folder: str | Path, stories: Sequence[Story], image: str | Image = "video") -> list[Question]:
    """Makes the videos of stories, and writes their questions beside them; videos that are there are kept.

    Args:
        cache: an open cache.
        folder: is made if it is not there, see `tvsnap.video.egoschema`.
        stories: the stories.
        image: with the environment `video`.

    Returns:
        The questions, as `read_questions` reads them.

    Raises:
        InfrastructureError: a video could not be made.
    """
    folder = Path(folder)
    (folder / VIDEOS).mkdir(parents=True, exist_ok=True)
    missing = [one for one in stories if not (folder / VIDEOS / f"{one.id}.mp4").exists()]
    if missing:
        with cache.rollout(image, task="samples of videos") as rollout:
            for one in missing:
                path = f"/videos/{one.id}.mp4"
                scenes = [scene.described() for scene in one.scenes]
                request = json.dumps({"path": path, "width": WIDTH, "height": HEIGHT, "scenes": scenes})
                command = f"python3 -I -B /run/tvsnap/video.pyz sample {shlex.quote(request)}"
                result = rollout.call("exec", {"command": command}, timeout=_TIMEOUT)
                if result.exit_code != 0:
                    raise InfrastructureError(f"the video {one.id} could not be made: {result.output[-300:]}")
                rollout.get(path, folder / VIDEOS / f"{one.id}.mp4")
    entries = [
        {
            "q_uid": one.id,
            "google_drive_id": "",
            "question": one.question,
            **{f"option {number}": option for number, option in enumerate(one.options)},
        }
        for one in stories
    ]
    (folder / QUESTIONS).write_text(json.dumps(entries, indent=1))
    (folder / ANSWERS).write_text(json.dumps({one.id: one.answer for one in stories}, indent=1))
    return read_questions(folder)


def _sign(scenes: Sequence[Scene], chance: random.Random) -> tuple[str, str, list[str]]:
    scene = chance.choice([one for one in scenes if one.sign])
    return f"Which word is written in the picture while the {scene.name} is there?", scene.sign, list(_SIGNS)


def _number(scenes: Sequence[Scene], chance: random.Random) -> tuple[str, str, list[str]]:
    scene = chance.choice([one for one in scenes if one.sentence])
    number = next(word for word in scene.sentence.split() if word in _NUMBERS)
    about = scene.sentence.replace(number, "how many", 1)
    return f"Which number does somebody say in the sentence: {about}?", number, list(_NUMBERS)


def _motion(scenes: Sequence[Scene], chance: random.Random) -> tuple[str, str, list[str]]:
    scene = chance.choice(scenes)
    return f"How does the {scene.name} move?", scene.motion, list(_MOVES)


def _first(scenes: Sequence[Scene], chance: random.Random) -> tuple[str, str, list[str]]:
    later = [one.name for one in scenes[1:]]
    absent = [f"{colour} {shape}" for colour in _COLOURS for shape in _SHAPES if f"{colour} {shape}" not in later]
    return "Which of these appears first in the video?", scenes[0].name, (later + absent)[: OPTIONS + 1]


def _count(scenes: Sequence[Scene], chance: random.Random) -> tuple[str, str, list[str]]:
    shape = chance.choice(scenes).thing[1]
    count = sum(one.thing[1] == shape for one in scenes)
    return f"How many different {shape}s are there in the video?", str(count), [str(number) for number in range(1, 11)]
