"""A client that sends the requests which TVCache's own client sends, and takes the same from the answers."""

from __future__ import annotations

import http.client
import importlib.util
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode


class Client:
    """Named and used as TVCache's `TVCacheClient`."""

    def __init__(self, url: str, *, sharded: bool = False, agent: str = "python-requests/2.32.5") -> None:
        self._host = url.removeprefix("http://")
        self._sharded = sharded
        self._agent = agent
        self._of_thread = threading.local()

    def ask(self, method: str, where: str, body: Any = None, /, **query: Any) -> tuple[int, Any]:
        """Returns the status and the JSON of an answer."""
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._of_thread.connection = http.client.HTTPConnection(self._host, timeout=60)
        headers = {"user-agent": self._agent}
        if self._sharded:
            headers["X-Task-Name"] = (body or query).get("task_name") or "__admin__"
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["content-type"] = "application/json"
        target = f"/{where}?{urlencode(query, doseq=True)}" if query else f"/{where}"
        connection.request(method, target, data, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def _got(self, method: str, where: str, body: Any = None, /, **query: Any) -> Any:
        status, data = self.ask(method, where, body, **query)
        assert status == 200, data
        return data

    def exact_match(self, task: str, calls: list[str]) -> bool:
        return bool(self._got("GET", "get", task_name=task, tool_calls=calls)["found"])

    def get(self, task: str, calls: list[str]) -> tuple[Any, ...]:
        data = self._got("GET", "get", task_name=task, tool_calls=calls)
        return (data["found"], data["env_id"], data["value"], data["tool_exec_time"])

    def prefix_match(self, task: str, calls: list[str]) -> tuple[str | None, list[str]]:
        data = self._got("POST", "prefix_match", {"task_name": task, "tool_calls": calls})
        return (data["env_id"], data["history"]) if data["found"] else (None, [])

    def intel_prefix_match(self, task: str, calls: list[str]) -> tuple[str | None, list[str], list[str]]:
        data = self._got("POST", "intel_prefix_match", {"task_name": task, "tool_calls": calls})
        return (data["env_id"], data["history"], data["suffix"]) if data["found"] else (None, [], [])

    def put(
        self,
        task: str,
        history: list[str],
        env_id: str | None,
        values: list[Any] | None = None,
        tool_exec_times: list[float] | None = None,
        start_idx: int = 0,
    ) -> list[str]:
        body = {"task_name": task, "history": history, "env_id": env_id, "values": values}
        data = self._got("PUT", "put", {**body, "tool_exec_times": tool_exec_times, "start_idx": start_idx})
        return list(data["removed_env_ids"])

    def mark_stateless(self, task: str, history: list[str], env_id: str) -> bool:
        body = {"task_name": task, "history": history, "env_id": env_id}
        return self.ask("POST", "mark_stateless", body) == (200, {"success": True})

    def remove(self, task: str, history: list[str]) -> bool:
        return bool(self._got("DELETE", "remove", {"task_name": task, "history": history})["success"])

    def can_extend(self, task: str, history: list[str], suffix: list[str]) -> tuple[bool, list[str]]:
        data = self._got("POST", "can_extend", {"task_name": task, "history": history, "suffix": suffix})
        return data["can_extend"], data["suffix"]

    def should_fork(self, task: str, history: list[str]) -> tuple[bool, str | None]:
        data = self._got("POST", "should_fork", {"task_name": task, "history": history})
        return data["should_fork"], data["env_id"]

    def get_hot_nodes(self, k: int = 1) -> dict[str, list[list[str]]]:
        return dict(self._got("GET", "get_hot_nodes", k=k)["hot_nodes"])

    def check_env_marked(self, env_id: str) -> bool:
        return bool(self._got("GET", "check_env_marked", env_id=env_id)["marked"])

    def store_test_result(self, task: str, history: list[str], test_result: str) -> bool:
        body = {"task_name": task, "history": history, "test_result": test_result}
        return bool(self._got("POST", "store_test_result", body)["success"])

    def get_test_result(self, task: str, calls: list[str]) -> tuple[bool, str | None]:
        data = self._got("GET", "get_test_result", task_name=task, tool_calls=calls)
        return data["found"], data["test_result"]

    def unref(self, env_id: str, task: str | None = None) -> bool:
        body = {"env_id": env_id} if task is None else {"env_id": env_id, "task_name": task}
        return bool(self._got("POST", "unref", body)["success"])

    def get_all_envs(self, task: str) -> list[str]:
        return list(self._got("GET", "get_all_envs", task_name=task)["env_ids"])


def published(folder: Path, name: str, url: str) -> Any:
    """Returns TVCache's own client.

    Args:
        folder: the folder `tvcache/client` of a copy of TVCache's repository.
        name: the module that it is in.
        url: the server.
    """
    path = folder / "tvclient" / "utils" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TVCacheClient(url)
