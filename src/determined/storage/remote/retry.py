"""Calls to a remote storage: retry when that may help, and distinguish refusal from failure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from determined.errors import CheckpointError, NoDirectStorageAccess

logger = logging.getLogger("determined.storage")

_PAUSES_SECONDS = (0.2, 0.8, 3.2)
_REFUSALS = {  # by name: the libraries that define them are optional
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "TokenRetrievalError",
    "ClientAuthenticationError",
    "DefaultCredentialsError",
    "RefreshError",
}
# Raised by wrong calls and missing packages: retrying does not help.
_PROGRAMMING_ERRORS = (TypeError, ValueError, AttributeError, ImportError, NotImplementedError)

R = TypeVar("R")


def _is_refusal(error: BaseException | None) -> bool:
    while error is not None:
        names = {kind.__name__ for kind in type(error).__mro__}
        status = getattr(error, "status_code", None) or getattr(error, "code", None)
        if isinstance(error, PermissionError) or names & _REFUSALS or status in (401, 403):
            return True
        error = error.__cause__
    return False


def with_retries(operation: str, url: str, action: Callable[[], R]) -> R:
    """Run `action`, and retry after a pause if it fails; a missing object is raised at once."""
    for pause in (*_PAUSES_SECONDS, None):
        try:
            return action()
        except (FileNotFoundError, *_PROGRAMMING_ERRORS):
            raise
        except Exception as error:
            if _is_refusal(error):
                raise NoDirectStorageAccess(
                    f"Cannot {operation} {url}: access denied or no credentials ({error}). Check "
                    "this process's credentials and permissions."
                ) from error
            if pause is None:
                raise CheckpointError(
                    f"Cannot {operation} {url}: gave up after {len(_PAUSES_SECONDS) + 1} attempts. "
                    f"Last error: {type(error).__name__}: {error}"
                ) from error
            logger.info("Could not %s %s, will try again: %s", operation, url, error)
        time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")
