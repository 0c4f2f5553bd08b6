"""Run trial code directly, outside any platform: what tests of trials and loaders use."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from determined._legacy.trial_context import EnvContext, build_local_env
from determined.core._context import Context, _dummy_init


def _make_local_execution_env(
    managed_training: bool,
    test_mode: bool,
    config: dict[str, Any] | None,
    checkpoint_dir: str,
    tensorboard_path: str | os.PathLike[str] | None = None,
    hparams: dict[str, Any] | None = None,
    limit_gpus: int | None = None,
) -> tuple[Context, EnvContext]:
    """Build the services and the description of a trial on this machine."""
    core_context = _dummy_init(checkpoint_storage=checkpoint_dir, tensorboard_path=tensorboard_path)
    env = build_local_env(
        config,
        hparams=hparams,
        managed_training=managed_training,
        test_mode=test_mode,
        limit_gpus=limit_gpus,
    )
    return core_context, env


@contextlib.contextmanager
def _local_execution_manager(new_directory: Path) -> Iterator[None]:
    """Work in another directory, and import from it first, while the `with` block runs."""
    old_directory, old_first = Path.cwd(), sys.path[0]
    os.chdir(new_directory)
    sys.path[0] = ""
    try:
        yield
    finally:
        os.chdir(old_directory)
        sys.path[0] = old_first
