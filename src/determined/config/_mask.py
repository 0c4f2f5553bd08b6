"""Keep secrets out of what is shown: configurations, problems, logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from determined.config.messages.problems import Path

MASK = "********"

_SECRET_KEYS = frozenset({"access_key", "secret_key", "connection_string", "credential"})
_OPEN_IN_REGISTRY = frozenset({"username", "serveraddress", "email"})
_HOOKS = frozenset({"on_end", "on_failure"})
_SECRET_WORDS = frozenset({"key", "secret", "token", "password"})
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")  # of snake_case, kebab-case, camelCase
_PASSWORD_IN_URL = re.compile(r"(\w[\w+.-]*://[^/\s:@]*):[^/\s@]+@")
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
    if path[0] == "hyperparameters" and path[-1] != "type" and is_secret_name(path):
        return MASK
    return masked_text(value)


def masked_hparams(values: Any) -> Any:
    """Return hyperparameters of a trial in which texts named like a secret read `********`.

    Numbers are never secrets: `max_tokens` is none.
    """
    return _masked(values, ("hyperparameters",))


def is_secret_name(path: Iterable[str | int]) -> bool:
    """Whether a name tells of a secret: it has the whole word key, secret, token or password."""
    words = (word for part in path for word in _WORD.findall(str(part)))
    return any(word.lower() in _SECRET_WORDS for word in words)


def masked_text(text: str) -> str:
    """Return a text in which the passwords of URLs read `********`."""
    return _PASSWORD_IN_URL.sub(rf"\1:{MASK}@", text) if "://" in text else text


def _masked_variable(variable: str) -> str:
    """What a variable is set to is nobody's business; what is set may be."""
    name, equals, value = variable.partition("=")
    return f"{name}={MASK}" if value else f"{name}{equals}"


def _masked_address(hook: str) -> str:
    """A hook's URL often contains its credentials: keep only the host."""
    if not hook.startswith(("http://", "https://")):
        return hook
    try:
        url = urlsplit(hook)
        return f"{url.scheme}://{url.hostname or ''}/{MASK}"
    except ValueError:
        return MASK
