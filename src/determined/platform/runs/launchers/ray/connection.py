"""The connection to the cluster: this process becomes its driver, or reports why it cannot.

Ray tries for minutes to reach an address that nothing listens on, and cannot be interrupted. So
check first that something listens, and connect in the background.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future

from determined.errors import DeterminedError
from determined.platform.machines.cluster import ClusterSettings

NAMESPACE = "determined"
_CLIENT = "ray://"
_LISTENS_SECONDS = 5.0
_CONNECT_SECONDS = 20.0


_NOT_LET_IN = (
    f"it let nobody in within {_CONNECT_SECONDS:.0f} s. If it asks for a token: set "
    "RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or the file ~/.ray/auth_token, and start the "
    "supervisor again (`det supervisor stop`)."
)


class Connection:
    """At most one attempt at a time: a caller that gave up waiting can wait for it again."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._attempt: Future[None] | None = None

    async def open(self) -> None:
        """Become a driver of the cluster; DeterminedError if that fails or takes too long."""
        if self._attempt is None:
            self._attempt = _in_background(self._connect)
        attempt = self._attempt
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(attempt)), _CONNECT_SECONDS)
        except asyncio.TimeoutError:
            raise self._unreachable(_NOT_LET_IN) from None
        finally:
            if attempt.done():
                self._attempt = None

    def _connect(self) -> None:
        import ray

        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        address = self._settings.address
        try:
            if address != "auto":
                _find_listener(address)
            _become_driver(address)
        except Exception as error:
            raise self._unreachable(_first_sentence(error)) from error

    def _unreachable(self, why: str) -> DeterminedError:
        return DeterminedError(
            f"Cannot connect to the Ray cluster {self._settings.address}: {why} Is it up (`ray "
            "status`)? Trials wait for it. To use this machine instead: "
            f"{self._settings.way_back}."
        )


def _find_listener(address: str) -> None:
    """Raise OSError if nothing listens at an address."""
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _LISTENS_SECONDS).close()


def _become_driver(address: str) -> None:
    import ray

    ray.init(
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        configure_logging=False,
    )


def _first_sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}."
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return line.partition(". ")[0].rstrip(".") + "."


def _in_background(function: Callable[[], None]) -> Future[None]:
    """Call a function in a thread that the end of the process does not wait for."""
    future: Future[None] = Future()

    def work() -> None:
        try:
            function()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=work, name="cluster", daemon=True).start()
    return future
