"""Motifs of videos: small ones that FFmpeg makes in a sandbox, loaded, looked at, and changed behind the tools."""

from __future__ import annotations

from random import Random

from tests.fuzz.cases import Motif, Step, execute

_MEMORY = "/var/lib/tvsnap-video"
_QUESTIONS = ("which objects are there?", "is there a red square?", "what is written?", "")


def motif(chance: Random, d: str) -> Motif:
    """Returns a motif.

    Args:
        chance: what chooses.
        d: a path whose last letter no other motif of the history has.
    """
    path = f"{d}.mp4"
    kind = chance.choice(("shown", "chance", "changed", "spoilt", "other"))
    colour, seconds = chance.choice(("red", "blue", "white")), chance.choice((1, 3, 5))
    steps = [_made(path, colour, seconds, "$RANDOM" if kind == "chance" else "GATE"), _load(path)]
    if kind != "other":
        steps.append(Step("preprocess", {}))
    if kind == "changed":
        steps.append(
            execute(f"rm {_MEMORY}/frames/*1.jpg; sqlite3 {_MEMORY}/memory.sqlite 'DELETE FROM Objects' || true")
        )
    if kind == "spoilt":
        steps.append(execute(f"printf {chance.choice(('x', 'SQLite'))} > {_MEMORY}/memory.sqlite"))
    if kind == "other":
        steps += [_made(path, "green", seconds, "OTHER"), Step("preprocess", {})]
    views = (*(_look(chance) for _ in range(4)), execute(f"cat {_MEMORY}/frames/*.jpg | sha256sum; ls {_MEMORY}"))
    return Motif(f"V {kind}", tuple(steps), views)


def step(chance: Random) -> Step:
    """Returns a call that may come in between."""
    if chance.random() < 0.6:
        return _look(chance)
    other = (
        Step("preprocess", {}),
        _load("/app/none.mp4"),
        execute("ls -A /videos /app"),
        execute("echo $RANDOM > /app/r"),
    )
    return chance.choice(other)


def _made(path: str, colour: str, seconds: int, text: str) -> Step:
    written = f"drawtext=fontfile=/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf:text={text}:fontsize=48:x=20:y=20"
    source = f"color=c={colour}:s=320x180:r=5:d={seconds}"
    return execute(
        f'mkdir -p $(dirname {path}); ffmpeg -v error -y -f lavfi -i "{source},{written}" -threads 1 '
        f"-fflags +bitexact -flags:v +bitexact {path}"
    )


def _load(path: str) -> Step:
    return Step("load_video_into_sandbox", {"video_name": path})


def _look(chance: Random) -> Step:
    """Returns a call of one of the four tools that read."""
    first = chance.randrange(3)
    return chance.choice(
        (
            Step("caption_retrieval", {"start_segment_ID": first, "end_segment_ID": first + 2}),
            Step("segment_localization", {"description": chance.choice(_QUESTIONS)}),
            Step("object_memory_querying", {"question": chance.choice(_QUESTIONS)}),
            Step("visual_question_answering", {"question": chance.choice(_QUESTIONS), "segment_ID": first}),
        )
    )
