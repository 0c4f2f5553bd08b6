"""Keep secrets out of what is shown: configurations, problems, logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from determined.config._problems import Path

MASK = "********"

_SECRET_KEYS = frozenset({"access_key", "secret_key", "connection_string", "credential"})
_OPEN_IN_REGISTRY = frozenset({"username", "serveraddress", "email"})
_HOOKS = frozenset({"on_end", "on_failure"})
_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|(API|ACCESS|AUTH|ACCOUNT|ENCRYPTION)_?KEY"
    r"|_KEY$|^KEY$|_PAT$|_AUTH$|CONNECTION_STRING|_DSN$",
    re.IGNORECASE,
)
_SECRET_WORD = re.compile(
    r"access_key|secret|password|connection_string|credential|registry_auth|token|api_?key|://",
    re.IGNORECASE,
)


def masked(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a configuration in which secrets read `********`."""
    return {key: _masked(value, (key,)) for key, value in config.items()}


def is_secret(path: Path) -> bool:
    """Whether the value at a path is a secret."""
    if not path:
        return False
    inside_storage = path[0] in ("checkpoint_storage", "tensorboard_storage")
    return (
        (inside_storage and path[-1] in _SECRET_KEYS)
        or path[:2] == ("data", "secrets")
        or (path[:2] == ("environment", "registry_auth") and path[-1] not in _OPEN_IN_REGISTRY)
    )


def is_about_secrets(line: str) -> bool:
    """Whether a line of a file may contain a secret and must not be shown."""
    return _SECRET_WORD.search(line) is not None


def _masked(value: Any, path: Path) -> Any:
    if isinstance(value, Mapping):
        return {key: _masked(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, (*path, i)) for i, item in enumerate(value)]
    if value is None:
        return None
    if is_secret(path):
        return MASK
    if not isinstance(value, str):
        return value
    if path[:2] == ("environment", "environment_variables"):
        return _masked_variable(value)
    if path[0] == "integrations" and len(path) == 2 and path[1] in _HOOKS:
        return _masked_address(value)
    return value


def _masked_variable(variable: str) -> str:
    name, equals, value = variable.partition("=")
    secret = bool(_SECRET_NAME.search(name) and value)
    return f"{name}={MASK}" if secret else f"{name}{equals}{value}"


def _masked_address(hook: str) -> str:
    """A hook's URL often contains its credentials: keep only the host."""
    if not hook.startswith(("http://", "https://")):
        return hook
    try:
        url = urlsplit(hook)
        return f"{url.scheme}://{url.hostname or ''}/{MASK}"
    except ValueError:
        return MASK
