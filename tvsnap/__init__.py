"""tvsnap: a stateful tool-value cache for agents that act in containers.

`tvsnap.errors` has the errors, and `tvsnap.types` the types of what calls return and of what extensions use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvsnap import errors as errors
    from tvsnap import types as types
    from tvsnap.aio.cache import AsyncCache
    from tvsnap.aio.rollout import AsyncRollout
    from tvsnap.aio.sandbox import AsyncSandbox
    from tvsnap.cache import Cache
    from tvsnap.engine.keeping.policy import Policy
    from tvsnap.environments.base import Environment
    from tvsnap.environments.terminal import TerminalEnvironment
    from tvsnap.environments.tool_schemas import tool_schemas
    from tvsnap.environments.tools import Tool, tool
    from tvsnap.environments.toolset import ToolEnvironment
    from tvsnap.images import ImageStore
    from tvsnap.model.calls import ToolCall, ToolResult
    from tvsnap.model.errors import InfrastructureError, TvsnapError, UsageError
    from tvsnap.model.grades import Grade, Verifier
    from tvsnap.model.images import Image, Timeouts
    from tvsnap.model.limits import Budget, Limits
    from tvsnap.model.network import Network
    from tvsnap.model.task import Task
    from tvsnap.plugins.client.client import Client, connect
    from tvsnap.rollout import Rollout
    from tvsnap.sandboxes.protocol import Backend, Sandbox

# Imported when first used: `import tvsnap` itself costs next to nothing.
_NAMES = {
    "tvsnap.aio.cache": "AsyncCache",
    "tvsnap.aio.rollout": "AsyncRollout",
    "tvsnap.aio.sandbox": "AsyncSandbox",
    "tvsnap.cache": "Cache",
    "tvsnap.plugins.client.client": "Client connect",
    "tvsnap.engine.keeping.policy": "Policy",
    "tvsnap.environments.base": "Environment",
    "tvsnap.environments.terminal": "TerminalEnvironment",
    "tvsnap.environments.tool_schemas": "tool_schemas",
    "tvsnap.environments.tools": "Tool tool",
    "tvsnap.environments.toolset": "ToolEnvironment",
    "tvsnap.images": "ImageStore",
    "tvsnap.model.calls": "ToolCall ToolResult",
    "tvsnap.model.errors": "InfrastructureError TvsnapError UsageError",
    "tvsnap.model.grades": "Grade Verifier",
    "tvsnap.model.images": "Image Timeouts",
    "tvsnap.model.limits": "Budget Limits",
    "tvsnap.model.network": "Network",
    "tvsnap.model.task": "Task",
    "tvsnap.rollout": "Rollout",
    "tvsnap.sandboxes.protocol": "Backend Sandbox",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
_OTHERS = ("errors", "types")  # modules with further names

__all__ = [
    "AsyncCache",
    "AsyncRollout",
    "AsyncSandbox",
    "Backend",
    "Budget",
    "Cache",
    "Client",
    "Environment",
    "Grade",
    "Image",
    "ImageStore",
    "InfrastructureError",
    "Limits",
    "Network",
    "Policy",
    "Rollout",
    "Sandbox",
    "Task",
    "TerminalEnvironment",
    "Timeouts",
    "Tool",
    "ToolCall",
    "ToolEnvironment",
    "ToolResult",
    "TvsnapError",
    "UsageError",
    "Verifier",
    "connect",
    "tool",
    "tool_schemas",
]


if not TYPE_CHECKING:  # who checks types would take any name at all for one of ours

    def __getattr__(name: str) -> Any:
        if name in _OTHERS:
            return importlib.import_module(f"{__name__}.{name}")
        value = getattr(importlib.import_module(_MODULES.get(name) or _moved(name)), name)
        globals()[name] = value
        return value

    def _moved(name: str) -> str:
        """Returns the module that has a name which this one had once."""
        for other in _OTHERS if name[:1].isupper() else ():
            if name in importlib.import_module(f"{__name__}.{other}").__all__:
                return f"{__name__}.{other}"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_OTHERS, *__all__})
