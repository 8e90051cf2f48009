"""The other services of a task with a Compose file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from tvsnap.model.services import ImageService
from tvsnap.plugins.harnesses.harbor.files import TrialFiles
from tvsnap.plugins.harnesses.harbor.host import ExecResult, ServiceOperationsUnsupportedError
from tvsnap.plugins.harnesses.stopping import stop_command


class TrialServices(TrialFiles):
    """A trial with methods for the services of its task."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See `TvsnapEnvironment`."""
        self._stopped: set[str] = set()
        super().__init__(*args, **kwargs)

    async def service_exec(
        self,
        command: str,
        *,
        service: str | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command in a service, or answers it from the graph.

        In another service than the main one, a command is one of sh, as with Harbor's Docker environment, and has the
        service's working directory, variables and user, unless they are given.

        Args:
            command, cwd, env, timeout_sec, user: see `exec`.
            service: the service's name in the Compose file; by default the main one.

        Raises:
            ServiceOperationsUnsupportedError: the task has no such service.
            RuntimeError, TvsnapError: see `exec`.
        """
        if service is None or self.is_main_service(service):
            return await self.exec(command, cwd=cwd, env=env, timeout_sec=timeout_sec, user=user)
        target = self._service(service)
        if service in self._stopped:
            return not_running(service)
        options = {"cwd": cwd, "env": env, "user": None if user is None else str(user)}
        arguments = {name: value for name, value in options.items() if value}
        inside = f"exec sh -c {shlex.quote(self._numbered(command))}"
        return await self._exec({"command": inside, "service": target.name, **arguments}, timeout_sec)

    async def service_download_file(
        self, source_path: str, target_path: Path | str, *, service: str | None = None
    ) -> None:
        """Copies a file of a service to this machine; see `download_file`.

        Args:
            source_path, target_path: see `download_file`.
            service: the service's name in the Compose file; by default the main one.

        Raises:
            ServiceOperationsUnsupportedError: the task has no such service.
            OSError: see `download_file`.
        """
        await self.download_file(self._path_in(service, source_path), target_path)

    async def service_download_dir(
        self, source_dir: str, target_dir: Path | str, *, service: str | None = None
    ) -> None:
        """Copies the contents of a folder of a service to this machine; see `download_dir`.

        Args:
            source_dir, target_dir: see `download_dir`.
            service: the service's name in the Compose file; by default the main one.

        Raises:
            ServiceOperationsUnsupportedError: the task has no such service.
            OSError: see `download_dir`.
        """
        await self.download_dir(self._path_in(service, source_dir), target_dir)

    async def stop_service(self, service: str) -> None:
        """Ends the processes of a service; its files stay. A command in it fails from then on, as with Docker.

        Args:
            service: the service's name in the Compose file. Its program is told to end by SIGTERM, and has 10 s for
                that; the main service ends at once if it has only a shell.

        Raises:
            ServiceOperationsUnsupportedError: the task has no such service.
            RuntimeError: processes of it remain.
        """
        image = self._image
        program = image.services.program if image is not None else None
        target = program if self.is_main_service(service) else self._service(service)
        result = await self._exec({"command": stop_command(target), "cwd": "/", "user": "root"}, None)
        if result.return_code != 0:
            raise RuntimeError(f"the service {service} could not be stopped: {result.stdout}")
        self._stopped.add(service)

    def _service(self, name: str) -> ImageService:
        self._running()
        assert self._image is not None
        service = self._image.services.named(name)
        if service is None:
            have = ", ".join(self._image.services.names)
            raise ServiceOperationsUnsupportedError(f"the task has no service {name!r}; have: {have}")
        return service

    def _path_in(self, service: str | None, path: str) -> str:
        """Returns the path, in the sandbox, of a path in a service."""
        if service is None or self.is_main_service(service):
            return path
        return f"{self._service(service).root}/{path.lstrip('/')}"


def not_running(service: str) -> ExecResult:
    """Returns the result of a command in a service that was stopped."""
    return ExecResult(stdout=f'service "{service}" is not running\n', return_code=1)
