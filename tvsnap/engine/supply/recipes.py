"""Finds the recipe of the sandboxes of an image, or of a state of the graph."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Protocol

from tvsnap.engine.supply.recipe import Recipe
from tvsnap.environments import checked, environment, with_services
from tvsnap.environments.base import Environment
from tvsnap.environments.files import FilesEnvironment
from tvsnap.graph import Graph, RootInfo
from tvsnap.host.contents import Contents
from tvsnap.model.arguments import check_text
from tvsnap.model.calls import root_state
from tvsnap.model.errors import UsageError
from tvsnap.model.images import Image
from tvsnap.model.limits import Limits
from tvsnap.model.network import Network, NetworkLike
from tvsnap.model.shares import Shares
from tvsnap.sandboxes.network.files import identity, variables
from tvsnap.sandboxes.network.settings import NetworkSettings


class ImageSource(Protocol):
    """A source of images: an `ImageStore`, or an object with the same method."""

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
        lent: NetworkSettings,
        contents: Contents,
        shares: Shares,
    ) -> None:
        """
        Args:
            graph: has the roots.
            images: the source of images.
            environments: take precedence over the installed ones.
            limits: for all sandboxes; None if the limits of each image apply.
            platform: the properties of the machine that commands can see, see `Backend.platform`.
            lent: the network settings that the host provides to sandboxes with a network.
            contents: files that are put into sandboxes and fetched from them.
            shares: the parts of the processors that the sandboxes of several owners have.

        Raises:
            UsageError: one of the environments cannot be used.
        """
        self._graph = graph
        self._images = images
        self._environments: Mapping[str, Environment] = {one.name: one for one in map(checked, environments)}
        self._limits = limits
        self._platform = platform
        self._lent = lent
        self._contents = contents
        self._shares = shares
        self._with_files: dict[str, FilesEnvironment] = {}
        self._by_digest: dict[str, Image] = {}  # images that rollouts use; they may be removed from the store

    def of_image(
        self, image: str | Image, limits: Limits | None = None, network: NetworkLike = None, salt: str = ""
    ) -> Recipe:
        """Returns the recipe of fresh sandboxes of an image.

        Args:
            image: the image, or its name or digest.
            limits: their limits; None for those of all sandboxes of the image.
            network: their network policy; None for the image's.
            salt: that of their rollouts.

        Raises:
            NotFound: there is no such image.
            UsageError: its environment is unknown, or its limits make no sense.
        """
        source = image if isinstance(image, Image) else self._images.get(check_text(image, "image"))
        allowed = source.network if network is None else Network.of(network)
        return self._recipe(source, source.environment, limits or self.limits_for(source), allowed, salt)

    def of_state(self, state: str, network: NetworkLike = None) -> Recipe:
        """Returns the recipe of fresh sandboxes at the root of a state.

        `network` is their network policy; None for that of rollouts there.

        Raises:
            UsageError: no sandbox can be in that state.
            NotFound: there is no such state, or its image was removed.
        """
        root = self.root_of(state)
        if not root.image_digest:
            raise UsageError(
                f"state {state[:12]} stands for calls that depend on no state, or that a client has made elsewhere: "
                "no sandbox can be in it"
            )
        image = self._by_digest.get(root.image_digest) or self._images.get(root.image_digest)
        allowed = Network.parse(root.network) if network is None else Network.of(network)
        limits = _recorded_limits(root, self.limits_for(image))
        return self._recipe(image, root.environment, limits, allowed, root.salt)

    def with_network(self, recipe: Recipe, network: NetworkLike, salt: str) -> Recipe:
        """Returns a recipe with another network policy, for a rollout with a salt.

        Raises UsageError if `network` makes no sense.
        """
        image = self._by_digest[recipe.image.digest]
        return self._recipe(image, recipe.environment.name, recipe.limits, Network.of(network), salt)

    def root(self, recipe: Recipe, salt: str) -> RootInfo:
        """Returns the root at which a fresh sandbox of a recipe stands, for rollouts with a salt."""
        image, environment = recipe.image, recipe.environment
        limits = environment.behaviour(recipe.limits)
        shown = identity(self._lent) if image.network.attached else ""
        hash = root_state(
            image=image.digest,
            environment=environment.name,
            version=environment.version,
            limits=limits,
            network=str(image.network) + shown,
            platform=self._platform,
            salt=salt,
        )
        network = str(image.network)
        return RootInfo(hash, image.name, image.digest, environment.name, limits, salt, time.time(), network)

    def root_of(self, state: str) -> RootInfo:
        """Returns the root above a state.

        Raises:
            UsageError: `state` is not the hash of a state.
            NotFound: there is no such state.
        """
        return self._graph.root_of(state)

    def limits_for(self, image: Image) -> Limits:
        """Returns the limits of an image's sandboxes.

        Raises:
            UsageError: the image's limits make no sense, and the cache has none.
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

    def _recipe(self, image: Image, environment: str, limits: Limits, network: Network, salt: str) -> Recipe:
        if network.attached and salt:
            network = replace(network, space=hashlib.sha256(salt.encode()).hexdigest()[:32])
        served = with_services(self._environment(environment), image)
        if network.attached:
            more = variables(self._lent)
            image = replace(image, env={**image.env, **more}, services=image.services.with_variables(more))
        share = None
        if self._shares:
            owner = self._shares.owner(salt)
            share = owner, self._shares.parts()[owner]
        return Recipe(replace(image, network=network), served, limits, self._lent, share=share)

    def _environment(self, name: str) -> Environment:
        if name not in self._with_files:
            inner = self._environments.get(name) or environment(name)
            self._with_files[name] = FilesEnvironment(inner, self._contents)
        return self._with_files[name]


def _recorded_limits(root: RootInfo, limits: Limits) -> Limits:
    """Returns `limits`, updated with the recorded limits of a root.

    A limit that this version does not have any more is left out. Processor time without a limit is not recorded.
    """
    names = {field.name for field in fields(Limits)}
    recorded = {name: value for name, value in json.loads(root.limits).items() if name in names}
    return replace(limits, **{"cpus": 0.0, **recorded})
