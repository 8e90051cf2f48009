"""What a harness is told of the cache that it uses, and of the rollout that makes its calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, Field

from tvsnap.images import Image
from tvsnap.model.limits import MIB
from tvsnap.plugins.client.protocols import AnyRollout
from tvsnap.plugins.harnesses.caches import CacheOptions, process_cache
from tvsnap.plugins.harnesses.images import find_image


class CacheConfig(BaseModel):
    """The fields of a harness's configuration that say which cache it uses."""

    home: str | None = None
    """The data directory; see `tvsnap.Cache`."""
    url: str | None = None
    """The address of a server, in place of a data directory; by default `TVSNAP_URL`. See `tvsnap.connect`."""
    token: str | None = Field(default=None, exclude=True, repr=False)
    """The token that the server asks for; by default `TVSNAP_TOKEN`. It is not saved."""
    backend: str = "local"
    """The name of a backend; see `tvsnap.Cache`."""
    policy: str = "default"
    """The policy for snapshots; see `tvsnap.Cache`."""
    use_cache: bool = True
    """False to execute every call."""
    timeouts: Literal["private", "shared"] = "private"
    """Whether commands that timed out while they worked answer others; see `tvsnap.Cache`."""
    salt: str | None = None
    """Rollouts share states only with those of the same salt."""


class RolloutConfig(CacheConfig):
    """The fields that also say which rollout it makes."""

    image: str
    """An image's name or digest; or the path of a folder (with a slash) that an image is built from."""
    task: str = ""
    """The task's name in tvsnap's listings."""
    network: Literal["none", "public"] | list[str] | None = None
    """Hosts that commands may reach; by default the image's setting. See `tvsnap.Cache.rollout`."""
    output_limit: int = 16 * MIB
    """The most bytes that one command may print; more is cut in the middle."""


def cache_options(config: CacheConfig) -> CacheOptions:
    """Returns the options of the cache; raises what `CacheOptions.chosen` raises."""
    return CacheOptions.chosen(
        *(config.home, config.url, config.token),
        backend=config.backend,
        policy=config.policy,
        use_cache=config.use_cache,
        timeouts=config.timeouts,
    )


def begin_rollout(config: RolloutConfig) -> tuple[AnyRollout, Image]:
    """Begins a rollout in a cache of the process; returns it with its image.

    Raises:
        ImageNotFound: there is no such image.
        TvsnapError: the image cannot be built, or sandboxes are not possible on this machine; see `tvsnap.Cache`, and
            `tvsnap.connect`.
    """
    cache = process_cache(cache_options(config))
    image = find_image(cache.images, config.image)
    limits = replace(cache.limits_for(image), output=config.output_limit)
    return cache.rollout(image, config.task, config.salt, limits=limits, network=config.network), image
