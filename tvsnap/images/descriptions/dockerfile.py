"""Finds what a Dockerfile requires of its builder: images to start from, and syntax that only BuildKit supports.

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
_HEREDOC = re.compile(r"<<(-?)([\"']?)([A-Za-z_]\w*)\2")
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
        base: the one whose files the result begins with; "" if there is none.
        buildkit: where it uses features that only BuildKit has, as "line 3: RUN --mount".
    """

    images: tuple[str, ...]
    buildkit: tuple[str, ...]
    base: str = ""


@dataclass(frozen=True, slots=True)
class _Instruction:
    line: int
    name: str
    flags: tuple[str, ...]
    rest: str
    heredoc: bool


def read_dockerfile(path: Path, args: Mapping[str, str], target: str | None = None) -> Dockerfile:
    """Reads a Dockerfile; see `parse_dockerfile`. Raises OSError if it is unreadable."""
    return parse_dockerfile(read_small_text(path, "replace"), args, target)


def parse_dockerfile(text: str, args: Mapping[str, str], target: str | None = None) -> Dockerfile:
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
    for instruction in _instructions(text.splitlines()):
        where = f"line {instruction.line}: {instruction.name}"
        names = _BUILDKIT_FLAGS.get(instruction.name, ())
        buildkit += [f"{where} --{flag.split('=')[0]}" for flag in instruction.flags if flag.split("=")[0] in names]
        if instruction.heredoc:
            buildkit.append(f"{where} <<")
        if instruction.name == "ARG" and not stages:
            for word in instruction.rest.split():
                name, equals, default = word.partition("=")
                if name in args:
                    variables[name] = args[name]
                elif equals:
                    variables[name] = expand(default.strip("\"'"), variables)
        elif instruction.name == "FROM":
            if target is not None and target.lower() in stages:
                break
            if _PLATFORM_VARIABLE.search(" ".join((*instruction.flags, instruction.rest))):
                buildkit.append(f"{where} with the builder's platform")
            words = expand(instruction.rest, variables).split()
            if words and words[0].lower() not in (*stages, "scratch"):
                images.append(words[0])
            stages.append(words[2].lower() if len(words) == 3 and words[1].lower() == "as" else f"{len(stages)}")
            base = bases[stages[-1]] = bases.get(words[0].lower(), words[0]) if words else ""
        else:
            images += [
                image for image in _taken_from(instruction) if image.lower() not in stages and not image.isdigit()
            ]
    return Dockerfile(tuple(dict.fromkeys(images)), tuple(buildkit), base)


def _taken_from(instruction: _Instruction) -> Iterator[str]:
    for flag in instruction.flags:
        name, _, value = flag.partition("=")
        options = value.split(",") if name == "mount" else [flag]
        yield from (option.removeprefix("from=") for option in options if option.startswith("from="))


def _instructions(lines: list[str]) -> Iterator[_Instruction]:
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
            continues = line.endswith(escape)
            text += (line.removesuffix(escape) + " ") if continues else line
        name, *rest = text.split(maxsplit=1) or [""]
        words = rest[0].split() if rest else []
        flags = []
        while words and words[0].startswith("--"):
            flags.append(words.pop(0)[2:])
        heredoc = False
        if name.upper() in _BUILDKIT_FLAGS:
            for dash, _, word in _HEREDOC.findall(" ".join(words)):
                ends = (index for index in range(number, len(lines)) if _ended(lines[index], dash) == word)
                if (end := next(ends, None)) is not None:
                    heredoc = True
                    number = end + 1
        if name:
            yield _Instruction(start, name.upper(), tuple(flags), " ".join(words), heredoc)


def _ended(line: str, dash: str) -> str:
    return line.lstrip("\t") if dash else line
