"""Names of container images, in short and in full."""

from __future__ import annotations

import pytest

from tvsnap.images.build.base_image import suite_of
from tvsnap.images.build.references import full_reference, with_registry


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("debian", "docker.io/library/debian"),
        ("debian:bookworm-slim", "docker.io/library/debian:bookworm-slim"),
        ("org/task:1", "docker.io/org/task:1"),
        ("org/group/task", "docker.io/org/group/task"),
        ("docker.io/org/task:1", "docker.io/org/task:1"),
        ("ghcr.io/org/task@sha256:0123", "ghcr.io/org/task@sha256:0123"),
        ("localhost/task", "localhost/task"),
        ("registry:5000/task", "registry:5000/task"),
    ],
)
def test_registry(name: str, full: str) -> None:
    assert with_registry(name) == full


@pytest.mark.parametrize(("name", "full"), [("debian", "debian:latest"), ("h:50/a", "h:50/a:latest"), ("a:1", "a:1")])
def test_tag(name: str, full: str) -> None:
    assert full_reference(name) == full


@pytest.mark.parametrize(
    ("name", "suite"),
    [
        ("debian:bookworm-slim", "bookworm"),
        ("debian:13.1-slim", "trixie"),
        ("docker.io/library/debian:11", "bullseye"),
        ("ubuntu:24.04", "noble"),
        ("ubuntu:22.04-minimal", "jammy"),
        ("python:3.12-slim-trixie", "trixie"),
        ("python:3.12-slim", "bookworm"),
        ("ubuntu:latest", "bookworm"),
    ],
)
def test_suite(name: str, suite: str) -> None:
    assert suite_of(name) == suite
