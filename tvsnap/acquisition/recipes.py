"""Of what the sandboxes of an image, or of a state of the graph, are made."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Protocol

from tvsnap.acquisition.recipe import Recipe
from tvsnap.environments import checked, environment
from tvsnap.environments.base import Environment
from tvsnap.graph import Graph, RootInfo
from tvsnap.model.arguments import check_text
from tvsnap.model.calls import root_state
from tvsnap.model.errors import UsageError
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits

NETWORK = "none"  # sandboxes have a loopback of their own and nothing else


class ImageSource(Protocol):
    """Where images come from: an `ImageStore`, or what stands in for one."""

    def get(self, name: str) -> Image:
        """Returns an image.

        Args:
            name: its name or digest.

        Raises:
            NotFound: there is none.
        """
        ...


class Recipes:
    """Finds images, environments and limits for the sandboxes of one cache. Thread-safe."""

    def __init__(
        self,
        graph: Graph,
        images: ImageSource,
        environments: Iterable[Environment],
        limits: Limits | None,
        platform: str,
    ) -> None:
        """
        Args:
            graph: where roots are.
            images: where images come from.
            environments: those that come before the ones that are installed.
            limits: what every sandbox may use; None where the limits of each image apply.
            platform: what commands can see of the machine, see `Backend.platform`.

        Raises:
            UsageError: one of the environments cannot be used.
        """
        self._graph = graph
        self._images = images
        self._environments: Mapping[str, Environment] = {one.name: one for one in map(checked, environments)}
        self._limits = limits
        self._platform = platform
        self._by_digest: dict[str, Image] = {}  # those that rollouts use: removing one takes nothing from them

    def of_image(self, image: str | Image, limits: Limits | None = None) -> Recipe:
        """Returns of what fresh sandboxes of an image are made.

        Args:
            image: the image, or its name or digest.
            limits: what they may use; None for what all sandboxes of the image may.

        Raises:
            NotFound: there is no such image.
            UsageError: its environment is unknown, or its limits make no sense.
        """
        found = image if isinstance(image, Image) else self._images.get(check_text(image, "image"))
        return Recipe(found, self._environment(found.environment), limits or self.limits_for(found))

    def of_state(self, state: str) -> Recipe:
        """Returns of what the sandboxes at the root of a state are made.

        Raises:
            UsageError: no sandbox can be in that state.
            NotFound: there is no such state, or its image was removed.
        """
        root = self.root_of(state)
        if not root.image_digest:
            raise UsageError(
                f"state {state[:12]} stands for the tools that depend on no state: no sandbox can be in it"
            )
        image = self._by_digest.get(root.image_digest) or self._images.get(root.image_digest)
        return Recipe(image, self._environment(root.environment), _recorded_limits(root, self.limits_for(image)))

    def root(self, recipe: Recipe, salt: str) -> RootInfo:
        """Returns the root that a fresh sandbox made by a recipe stands at, for rollouts of one salt."""
        image, environment = recipe.image, recipe.environment
        limits = environment.behaviour(recipe.limits)
        hash = root_state(
            image=image.digest,
            environment=environment.name,
            version=environment.version,
            limits=limits,
            network=NETWORK,
            platform=self._platform,
            salt=salt,
        )
        return RootInfo(hash, image.name, image.digest, environment.name, limits, salt, time.time())

    def root_of(self, state: str) -> RootInfo:
        """Returns the root that a state descends from.

        Raises:
            UsageError: `state` is not the hash of a state.
            NotFound: there is no such state.
        """
        hash = self._graph.state(state).root
        return next(root for root in self._graph.roots() if root.hash == hash)

    def limits_for(self, image: Image) -> Limits:
        """Returns the limits that sandboxes of an image have.

        Raises:
            UsageError: the image asks for limits that make no sense, and the cache was given none.
        """
        if self._limits is not None:
            return self._limits
        try:
            return replace(Limits(), **image.limits.said())
        except UsageError as error:
            raise UsageError(f"image {image.name} cannot be run: {error} (or give Cache limits)") from None

    def remember(self, image: Image) -> None:
        """Keeps an image for as long as the cache is open."""
        self._by_digest[image.digest] = image

    def _environment(self, name: str) -> Environment:
        return self._environments.get(name) or environment(name)


def _recorded_limits(root: RootInfo, limits: Limits) -> Limits:
    """Returns `limits` with those that a root was recorded with; one that there is no more had its day."""
    known = {field.name for field in fields(Limits)}
    recorded = {name: value for name, value in json.loads(root.limits).items() if name in known}
    return replace(limits, **recorded)
