"""Rewrites a Dockerfile for builders that lack the newest syntax: without here-documents and `--link`.

The result means the same (Dockerfile reference, "Here-Documents"): the commands of a here-document become an argument
of the shell, its files are copied from a build context of their own.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field

from tvsnap.images.descriptions.dockerfile import HEREDOC, Instruction, instructions
from tvsnap.images.errors import BuildStepFailed

FILES = "tvsnap-here-documents"
"""The name of the build context with the files of here-documents."""

_SHELL = ["/bin/sh", "-c"]
_ONLY = re.compile(rf"\s*{HEREDOC.pattern}\s*")
_AS_FILE = 'file=$(mktemp) && cat > "$file" <<\'{end}\' && chmod 700 "$file" && "$file"\n{body}{end}\n'
_AS_FILE += 'status=$?; rm -f "$file"; exit $status\n'
_END = "TVSNAP_END_OF_FILE"


@dataclass
class PlainDockerfile:
    """A rewritten Dockerfile.

    Attributes:
        text: the Dockerfile.
        files: the contents of files that it copies from the build context `FILES`, by their names there.
    """

    text: str
    files: dict[str, str] = field(default_factory=dict)


def plain_dockerfile(text: str) -> PlainDockerfile:
    """Returns a Dockerfile without here-documents and `--link`.

    Raises:
        BuildStepFailed: a here-document that becomes a file refers to variables, which only BuildKit replaces.
    """
    lines = text.splitlines()
    plain = PlainDockerfile("")
    shell, written = _SHELL, []
    for one in instructions(lines):
        if one.name == "FROM":
            shell = _SHELL
        elif one.name == "SHELL":
            shell = _words(one.rest) or shell
        if one.heredocs and one.name == "RUN":
            flags = "".join(f"--{flag} " for flag in one.flags)
            written.append(f"RUN {flags}{json.dumps([*shell, _script(one)])}")
        elif one.heredocs:
            written += _copies(one, plain.files)
        elif "link" in _names(one):
            written.append(" ".join((one.name, *(f"--{flag}" for flag in _kept(one)), one.rest)))
        else:
            written += lines[one.line - 1 : one.end]
    head = list(itertools.takewhile(lambda line: line.startswith("#"), lines))  # directives come first
    plain.text = "\n".join((*head, *written, ""))
    return plain


def _names(one: Instruction) -> set[str]:
    return {flag.partition("=")[0] for flag in one.flags}


def _kept(one: Instruction) -> list[str]:
    return [flag for flag in one.flags if flag.partition("=")[0] != "link"]


def _words(rest: str) -> list[str]:
    try:
        value = json.loads(rest)
    except ValueError:
        return []
    return list(map(str, value)) if isinstance(value, list) else []


def _script(one: Instruction) -> str:
    """Returns the script of a RUN with here-documents."""
    body = one.heredocs[0].body
    if not _ONLY.fullmatch(one.rest):
        return "".join((one.rest, "\n", *(f"{each.raw}{each.name}\n" for each in one.heredocs)))
    return _AS_FILE.format(end=_END, body=body) if body.startswith("#!") else body


def _copies(one: Instruction, files: dict[str, str]) -> list[str]:
    """Returns instructions that replace a COPY or ADD with here-documents, and adds their files to `files`."""
    *sources, target = [word for word in one.rest.split() if not HEREDOC.fullmatch(word)]
    flags = "".join(f"--{flag} " for flag in _kept(one))
    lines = [f"{one.name} {flags}{' '.join(sources)} {target}"] if sources else []
    for each in one.heredocs:
        if not each.quoted and "$" in each.body:
            raise BuildStepFailed(
                f"failed: line {one.line}: the here-document {each.name} refers to variables, which needs BuildKit: "
                f"install docker-buildx, or write <<'{each.name}' if the dollars are meant as they are"
            )
        place = f"{len(files)}/{each.name}"
        files[place] = each.body
        lines.append(f"COPY --from={FILES} {flags}{place} {target}")
    return lines
