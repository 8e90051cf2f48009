"""Finds a Dockerfile's requirements of its builder: images to start from, and syntax that only BuildKit supports.

It is parsed only for that; errors are left to the builder to report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tvsnap.images.descriptions.variables import expand
from tvsnap.images.small_files import read_small_text

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)\s*")
HEREDOC = re.compile(r"<<(-?)([\"']?)([A-Za-z_]\w*)\2")
_FLAG = re.compile(r"--(\S+)\s*")
_BUILDKIT_FLAGS = {
    "RUN": ("mount", "network", "security"),
    "COPY": ("chmod", "link", "parents", "exclude"),
    "ADD": ("chmod", "link", "checksum", "keep-git-dir", "exclude"),
}
_PLATFORM_VARIABLE = re.compile(r"\$\{?(BUILD|TARGET)(PLATFORM|OS|ARCH|VARIANT)\b")


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """The requirements of a Dockerfile.

    Attributes:
        images: references of all images that it uses, in order.
        base: the image that the result starts from; "" if there is none.
        buildkit: its uses of features that only BuildKit has, such as "line 3: RUN --mount".
    """

    images: tuple[str, ...]
    buildkit: tuple[str, ...]
    base: str = ""


@dataclass(frozen=True, slots=True)
class HereDocument:
    """A here-document of an instruction.

    Attributes:
        name: the word that ends it.
        quoted: no variables are replaced in it.
        body: its content, without the tabs that `<<-` removes.
        raw: its unchanged content.
    """

    name: str
    quoted: bool
    body: str
    raw: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a Dockerfile.

    Attributes:
        line: its first line, from 1.
        end: its last line, here-documents included.
        name: in upper case.
        flags: its options, without the two dashes.
        rest: the text after these, in one line.
        heredocs: its here-documents.
    """

    line: int
    end: int
    name: str
    flags: tuple[str, ...]
    rest: str
    heredocs: tuple[HereDocument, ...]


def read_dockerfile(path: Path, args: Mapping[str, str], target: str | None = None) -> Dockerfile:
    """Reads a Dockerfile; see `parse_dockerfile`. Raises OSError if it is unreadable."""
    return parse_dockerfile(read_small_text(path, "replace"), args, target)


def parse_dockerfile(text: str, args: Mapping[str, str], target: str | None) -> Dockerfile:
    """Returns the requirements of a Dockerfile, given its text.

    Args:
        text: of the Dockerfile.
        args: build arguments, which may name images.
        target: the stage after which the rest is ignored.
    """
    variables: dict[str, str] = {}
    stages: list[str] = []
    bases: dict[str, str] = {"scratch": ""}
    base = ""
    images: list[str] = []
    buildkit: list[str] = []
    for instruction in instructions(text.splitlines()):
        where = f"line {instruction.line}: {instruction.name}"
        names = _BUILDKIT_FLAGS.get(instruction.name, ())
        buildkit += [f"{where} --{flag.split('=')[0]}" for flag in instruction.flags if flag.split("=")[0] in names]
        if instruction.heredocs:
            buildkit.append(f"{where} <<")
        if instruction.name == "ARG" and not stages:
            for word in instruction.rest.split():
                name, equals, default = word.partition("=")
                if name in args:
                    variables[name] = args[name]
                elif equals:
                    variables[name] = expand(default.strip("\"'"), variables, lenient=True)
        elif instruction.name == "FROM":
            if target is not None and target.lower() in stages:
                break
            if _PLATFORM_VARIABLE.search(" ".join((*instruction.flags, instruction.rest))):
                buildkit.append(f"{where} with the builder's platform")
            words = expand(instruction.rest, variables, lenient=True).split()
            if words and words[0].lower() not in (*stages, "scratch"):
                images.append(words[0])
            stages.append(words[2].lower() if len(words) == 3 and words[1].lower() == "as" else f"{len(stages)}")
            base = bases[stages[-1]] = bases.get(words[0].lower(), words[0]) if words else ""
        else:
            images += [
                image for image in _taken_from(instruction) if image.lower() not in stages and not image.isdigit()
            ]
    return Dockerfile(tuple(dict.fromkeys(images)), tuple(buildkit), base)


def _taken_from(instruction: Instruction) -> Iterator[str]:
    for flag in instruction.flags:
        name, _, value = flag.partition("=")
        options = value.split(",") if name == "mount" else [flag]
        yield from (option.removeprefix("from=") for option in options if option.startswith("from="))


def instructions(lines: list[str]) -> Iterator[Instruction]:
    """Yields the instructions of a Dockerfile, given its lines."""
    escape = "\\"
    number = 0
    for line in lines:
        directive = _DIRECTIVE.fullmatch(line.strip())
        if directive is None:
            break
        if directive[1].lower() == "escape":
            escape = directive[2]
    while number < len(lines):
        start = number + 1
        text = ""
        continues = True
        while continues and number < len(lines):
            line = lines[number].strip()
            number += 1
            if line.startswith("#") or (not line and text):
                continue
            start = start if text else number
            continues = line.endswith(escape)
            text += (line.removesuffix(escape) + " ") if continues else line
        name, rest = (*text.strip().split(maxsplit=1), "", "")[:2]
        flags = []
        while flag := _FLAG.match(rest):
            flags.append(flag[1])
            rest = rest[flag.end() :]
        heredocs = []
        if name.upper() in _BUILDKIT_FLAGS:
            for dash, quote, word in HEREDOC.findall(rest):
                ends = (index for index in range(number, len(lines)) if _ended(lines[index], dash) == word)
                if (end := next(ends, None)) is not None:
                    within = lines[number:end]
                    raw, body = ("".join(f"{_ended(line, cut)}\n" for line in within) for cut in ("", dash))
                    heredocs.append(HereDocument(word, bool(quote), body, raw))
                    number = end + 1
        if name:
            yield Instruction(start, number, name.upper(), tuple(flags), rest, tuple(heredocs))


def _ended(line: str, dash: str) -> str:
    return line.lstrip("\t") if dash else line
