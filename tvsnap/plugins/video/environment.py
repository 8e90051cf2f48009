"""The environment `video`: tools by which agents answer questions about long videos.

Names, arguments and answers of the tools are those of TVCache's published agent (arXiv 2602.10986), which took them
from VideoAgent (arXiv 2403.11481). Two of them change the state: they load a video, and build a memory of it inside the
sandbox. The other four read that memory.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from tvsnap import InfrastructureError, Sandbox, TerminalEnvironment, Tool, ToolResult, tool
from tvsnap.errors import ToolFailed
from tvsnap.guest.packing import packed
from tvsnap.plugins.video import prompts
from tvsnap.plugins.video.models import Asked, Model, Models, failure, runs_in_sandbox
from tvsnap.types import CallContext

FOLDER = "/var/lib/tvsnap-video"
"""The directory of a video's memory, inside."""
MOST_CAPTIONS = 15
"""Captions that one call returns, as in VideoAgent."""
CANDIDATES = 5
"""Segments that `segment_localization` returns, as in VideoAgent."""
_VERSION = "3"
_FRAMES = 4
"""Frames of a segment, and of three segments that a question is about."""
_PROGRAM = "/run/tvsnap/video.pyz"
_ANSWER = f"{FOLDER}/answer.json"
_REQUEST = f"{FOLDER}/request.json"
_LARGEST_ANSWER = 64 << 20
_LARGEST_FRAME = 4 << 20
_LEAST_MEMORY = 1 << 30
"""Bytes of addresses that a decoder may take, at least; else three quarters of the sandbox's memory."""
_DAMAGED = "the memory of the video is damaged: load and preprocess the video again"
_BATCH = 32
"""Segments whose frames are in this process at once."""

_ID, _COUNT = range(1 << 32), range(1, 1 << 32)
_SEGMENT = {"segment_id": _ID, "caption": str, "shown": str, "spoken": str}
_ANSWERS: Mapping[str, Any] = {
    "load": {"seconds": float, "width": _COUNT, "height": _COUNT, "segments": _COUNT},
    "preprocess": {"segments": [_SEGMENT], "frames": _COUNT},
    "finish": {"segments": _COUNT, "objects": _ID},
    "captions": {"total": _COUNT, "frames": _COUNT, "segments": [_SEGMENT]},
    "search": {"total": _COUNT, "segments": [_SEGMENT], "other_length": str},
    "things": {"total": _COUNT, "objects": [{"object_id": _ID, "category": str, "segments": [_ID]}]},
    "query": {},
}
"""The shape of each step's answer, as `_has_shape` reads it."""

_Segment = Annotated[int, {"minimum": 0}]


class VideoEnvironment(TerminalEnvironment):
    """The tools of videos, and those of a terminal."""

    def __init__(self, models: Models | None = None) -> None:
        """
        Args:
            models: the models that the tools ask; by default, those that need nothing but packages.

        Raises:
            UsageError: a model does not say which one it is.
        """
        self._models = Models() if models is None else models
        tools: list[Tool] = [tool(self.load_video_into_sandbox), tool(self.preprocess)]
        readers: Sequence[tuple[Callable[..., Any], Model | None]] = (
            (self.object_memory_querying, self._models.reasoner),
            (self.segment_localization, None),
            (self.caption_retrieval, None),
            (self.visual_question_answering, self._models.answerer),
        )
        tools += [tool(read_only=not runs_in_sandbox(model))(reader) for reader, model in readers]
        # Which models are asked is part of the root's name: states and answers of others are not shared.
        digest = hashlib.sha256(json.dumps(self._models.identities(), sort_keys=True).encode()).hexdigest()
        super().__init__("video", f"{_VERSION}, models {digest[:16]}", tools)

    def prepare(self, sandbox: Sandbox) -> None:
        """See `Environment.prepare`: puts the program of the tools into the sandbox."""
        super().prepare(sandbox)
        sandbox.write_file(_PROGRAM, _program(), user="root")
        result = sandbox.exec(f"install -d -o {shlex.quote(sandbox.image.user)} {FOLDER}", timeout=60, user="root")
        if result.exit_code != 0:
            raise InfrastructureError(f"{FOLDER} cannot be made: {result.output.decode('utf-8', 'replace').strip()}")

    def load_video_into_sandbox(
        self, context: CallContext, video_name: Annotated[str, "the path of a file, or an address (http, https)"]
    ) -> ToolResult:
        """Loads a video into the sandbox. This must be called before preprocess."""
        with _Call(context) as call:
            reply = call.step("load", {"video": video_name})
            call.say(
                f"Successfully loaded video into the sandbox: {reply['seconds']:g} seconds, {reply['width']} x "
                f"{reply['height']} pixels, {_total(reply['segments'])}"
            )
        return call.result

    def preprocess(self, context: CallContext) -> ToolResult:
        """Preprocesses the loaded video: builds the memory of its segments (captions, text, speech, embeddings), and of
        the objects in it. This must be called once after a video was loaded, and before it is asked about.
        """
        models = self._models
        with _Call(context) as call:
            reply = call.step("preprocess", {"answer": _ANSWER})
            segments = reply["segments"]
            captions = [str(one["caption"]) for one in segments]
            pictures: list[bytes] = []
            if models.captioner is not None or models.pictures is not None:
                for start in range(0, len(segments), _BATCH):
                    part = segments[start : start + _BATCH]
                    frames = [
                        call.frames(number, number, reply["frames"]) for number in range(start, start + len(part))
                    ]
                    if models.captioner is not None:
                        questions = [prompts.caption(one, shown) for one, shown in zip(part, frames, strict=True)]
                        captions[start : start + len(part)] = call.asked.texts(models.captioner, questions)
                    if models.pictures is not None:
                        middle = [shown[len(shown) // 2] for shown in frames]
                        pictures += call.asked.picture_vectors(models.pictures, middle)
            vectors = {"text": _encoded(call.asked.text_vectors(models.embedder, captions))}
            if pictures:
                vectors["pictures"] = _encoded(pictures)
            memory = call.step(
                "finish", {"captions": captions, "vectors": vectors, "used": [_ANSWER, _REQUEST]}, large=True
            )
            call.say(f"Preprocessing completed: {_total(memory['segments'])}, {_total(memory['objects'], 'object')}")
        return call.result

    def object_memory_querying(
        self, context: CallContext, question: Annotated[str, "such as: how many people are there in the video?"]
    ) -> ToolResult:
        """Answers a question about the objects in the video, and the segments that they appear in, from the object
        memory.
        """
        with _Call(context) as call:
            reply = call.step("things", {})
            if self._models.reasoner is None:
                call.say(prompts.objects_by_name(question, reply["objects"], reply["total"]))
            else:
                program = call.asked.texts(self._models.reasoner, [prompts.program(question, reply["objects"])])[0]
                rows = call.step("query", {"program": prompts.bare(program)})
                call.say(call.asked.texts(self._models.reasoner, [prompts.rows(question, program, rows)])[0])
        return call.result

    def segment_localization(
        self, context: CallContext, description: Annotated[str, "of an event, an action, a text or what is said"]
    ) -> ToolResult:
        """Returns the five segments that are most relevant to a textual description, with their captions."""
        with _Call(context) as call:
            call.step("captions", {"first": 0, "last": -1})  # models are paid for a video that is preprocessed only
            matches = call.search(self._models, description, CANDIDATES)
            listed = {one["segment_id"]: one["caption"] for one in matches["segments"]}
            call.say(f"{_range(matches['total'])} The most relevant segments are: {listed}.")
        return call.result

    def caption_retrieval(
        self,
        context: CallContext,
        start_segment_ID: _Segment,
        end_segment_ID: _Segment,
    ) -> ToolResult:
        """Returns the captions of the segments from start_segment_ID to end_segment_ID, at most 15."""
        with _Call(context) as call:
            last = min(end_segment_ID, start_segment_ID + MOST_CAPTIONS - 1)
            reply = call.step("captions", {"first": start_segment_ID, "last": last})
            listed = {one["segment_id"]: one["caption"] for one in reply["segments"]}
            call.say(f"{_range(reply['total'])} {listed or 'Invalid start and end segment IDs!'}")
        return call.result

    def visual_question_answering(
        self,
        context: CallContext,
        question: str,
        segment_ID: _Segment,
    ) -> ToolResult:
        """Describes the video from the segment before segment_ID to the one after it, and answers a question about
        it.
        """
        with _Call(context) as call:
            first, last = max(0, segment_ID - 1), segment_ID + 1
            reply = call.step("captions", {"first": first, "last": last})
            if segment_ID >= reply["total"]:
                raise ToolFailed(f"Segment ID {segment_ID} not in range 0-{reply['total'] - 1}.")
            last = min(last, reply["total"] - 1)
            if self._models.answerer is None:
                facts = prompts.facts(reply["segments"])
                vectors = call.asked.text_vectors(self._models.embedder, [question, *facts])
                call.say(prompts.answer_from(facts, prompts.most_similar(vectors[0], vectors[1:]), reply["segments"]))
            else:
                frames = _spread(call.frames(first, last, reply["frames"]))
                call.say(
                    call.asked.texts(self._models.answerer, [prompts.question(question, reply["segments"], frames)])[0]
                )
        return call.result


class _Call:
    """One call: runs steps of the program inside, asks models, and makes the result.

    As a context manager it turns failures of the tool, and time that is over, into results that say what models cost.
    """

    def __init__(self, context: CallContext) -> None:
        self._context = context
        self._began = time.monotonic()
        self._output = ""
        self._exit_code: int | None = 0
        self.asked = Asked(context.sandbox, context.timeout)

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, _OutOfTime):
            self.say("the call took too long")
            self._exit_code = None
        elif isinstance(error, ToolFailed):  # models may have been paid before
            self.say(str(error))
            self._exit_code = 1
        elif isinstance(error, OSError):  # of a file in the sandbox; those of models are failures of theirs
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self.say("there is no space left for the memory of the video" if full else _DAMAGED)
            self._exit_code = 1
        return isinstance(error, (_OutOfTime, ToolFailed, OSError))

    @property
    def result(self) -> ToolResult:
        seconds = time.monotonic() - self._began
        result = ToolResult.of_text(self._output, self._exit_code, seconds, timed_out=self._exit_code is None)
        return replace(result, cost=self.asked.cost)

    def say(self, text: str) -> None:
        """Sets the output."""
        text = text.encode("utf-8", "replace").decode()  # half of a surrogate pair
        self._output = text if text.endswith("\n") else f"{text}\n"

    def step(self, name: str, request: Mapping[str, Any], *, large: bool = False) -> dict[str, Any]:
        """Runs a step of the program; returns its answer. A `large` request goes through a file."""
        sandbox = self._context.sandbox
        memory = max(_LEAST_MEMORY, self._context.limits.memory * 3 // 4)
        text = json.dumps({**request, "memory": memory})
        if large:
            sandbox.write_file(_REQUEST, text.encode())
        argument = f"@{_REQUEST}" if large else shlex.quote(text)
        command = f"python3 -I -B {_PROGRAM} {name} {argument}"
        outcome = sandbox.exec(command, timeout=self.asked.left, separate=True)
        if outcome.timed_out:
            raise _OutOfTime
        if outcome.exit_code != 0:  # it was ended from outside, or an agent has changed what Python runs
            raise ToolFailed(f"the program of the video tools ended with status {outcome.exit_code}")
        in_file = "answer" in request and not outcome.output.strip()
        answer = sandbox.read_file(_ANSWER, limit=_LARGEST_ANSWER) if in_file else outcome.output
        try:
            reply = json.loads(answer)
        except (ValueError, RecursionError):
            reply = None
        if isinstance(reply, dict) and isinstance(reply.get("failed"), str):
            raise ToolFailed(reply["failed"])
        if not _has_shape(reply, _ANSWERS[name]):  # an agent has changed the memory, or what Python runs
            raise ToolFailed("the program of the video tools gave no answer" if name == "load" else _DAMAGED)
        return dict(reply)

    def search(self, models: Models, description: str, most: int) -> dict[str, Any]:
        """Returns the segments that are most similar to a description."""
        vectors = {"text": self.asked.text_vectors(models.embedder, [description])}
        if models.pictures is not None:
            vectors["pictures"] = self.asked.text_vectors(models.pictures, [description])
        reply = self.step(
            "search", {"vectors": {space: _encoded(one)[0] for space, one in vectors.items()}, "most": most}
        )
        if reply["other_length"]:
            model = models.pictures if reply["other_length"] == "pictures" else None
            raise failure(
                (model or models.embedder).identity,
                "gives vectors of another length than it did when the video was preprocessed",
            )
        return reply

    def frames(self, first: int, last: int, total: int) -> list[bytes]:
        """Returns the frames of some segments as JPEG files: of `total` ones that there are, the last at least."""
        begin, end = min(first * _FRAMES, total - 1), min((last + 1) * _FRAMES, total)
        read_file = self._context.sandbox.read_file
        return [read_file(f"{FOLDER}/frames/{number:06d}.jpg", limit=_LARGEST_FRAME) for number in range(begin, end)]


class _OutOfTime(Exception):
    pass


@cache
def _program() -> bytes:
    return packed(Path(__file__).with_name("inside"), "tvsnap_video")


def _has_shape(value: Any, shape: Any) -> bool:
    """Returns whether a value from a sandbox, where an agent may have changed anything, is what a step answers.

    Args:
        value: any JSON.
        shape: a type; a range of whole numbers; a list with the shape of each item; or a mapping with the shapes of the
            keys that are needed.
    """
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(_has_shape(value.get(key), one) for key, one in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(_has_shape(one, shape[0]) for one in value)
    if isinstance(shape, range):
        return type(value) is int and value in shape
    return isinstance(value, (int, float) if shape is float else shape) and not isinstance(value, bool)


def _encoded(vectors: Sequence[bytes]) -> list[str]:
    return [base64.b64encode(one).decode("ascii") for one in vectors]


def _spread(frames: Sequence[bytes]) -> tuple[bytes, ...]:
    """Returns four of several frames, the first and the last among them."""
    last = len(frames) - 1
    return tuple(frames[round(number * last / (_FRAMES - 1))] for number in range(_FRAMES)) if last else tuple(frames)


def _total(number: int, name: str = "segment") -> str:
    return f"{number} {name}" + "s" * (number != 1)


def _range(total: int) -> str:
    return f"There are {total} segments in total, ranging from 0 to {total - 1}."
