"""A Dockerfile with the parameters of its build, in image.yaml and Compose files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from tvsnap.images.descriptions.values import UNSAID, Part, Text, existing, must_be, word

Variables = dict[
    Annotated[str, word("[A-Za-z_][A-Za-z0-9_]*", "a variable's name of letters, digits and _")],
    Annotated[Text, must_be("a string (in quotes)")],
]


class DockerfilePart(Part):
    """A Dockerfile and the parameters of its build."""

    short = "path"
    context: Annotated[Path, existing("a folder", Path.is_dir)] = UNSAID
    path: Annotated[Path, existing("a Dockerfile", Path.is_file)] = Field(
        description="the Dockerfile, or context, the folder that has one"
    )
    args: Variables = UNSAID
    target: Text = UNSAID

    @model_validator(mode="before")
    @classmethod
    def has_a_dockerfile(cls, value: Any) -> Any:
        """Completes a context by the Dockerfile in it."""
        if isinstance(value, dict) and isinstance(context := value.get("context"), str):
            return {"path": str(Path(context, "Dockerfile")), **value}
        return value

    def said(self) -> dict[str, Any]:
        """See `Part.said`."""
        return {"context": self.path.parent, **super().said()}
