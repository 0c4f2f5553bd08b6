"""Files that did not change are shared between checkpoints, each of which is whole by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from determined import core
from determined._loops.saving import Saved, save_files
from tests.support.tasks import become_a_task


@pytest.mark.parametrize("save_frozen", ["once", "always"])
def test_unchanged_files_are_links_if_asked_for(
    save_frozen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage: dict[str, Any] = {"type": "shared_fs", "host_path": str(tmp_path / "storage")}
    config = {"checkpoint_storage": {**storage, "save_frozen": save_frozen}}
    become_a_task(tmp_path / "info", monkeypatch, config)
    out, last = tmp_path / "out", None
    saved: list[Saved] = []
    with core.init() as context:
        for step in (1, 2, 3):
            folder = out / f"step-{step}"
            (folder / "deep").mkdir(parents=True)
            (folder / "frozen").write_bytes(b"f" * 5000)
            (folder / "deep" / "frozen").write_text("too")
            (folder / "trained").write_text(f"{step}")  # as long as before
            (out / "other").write_text("not selected")

            def is_selected(path: str, prefix: str = f"step-{step}/") -> bool:
                return path.startswith(prefix)

            last = save_files(
                context,
                out,
                is_selected,
                {"steps_completed": step},
                step_folder=f"step-{step}",
                last=last,
            )
            saved.append(last)
        context.checkpoint.delete(saved[0].storage_id)
        for number, checkpoint in enumerate(saved[1:], 2):
            assert context.checkpoint.verify(checkpoint.storage_id)
            context.checkpoint.download(checkpoint.storage_id, tmp_path / f"{number}")
    for step in (2, 3):
        found = tmp_path / f"{step}" / f"step-{step}"
        assert (found / "trained").read_text() == f"{step}"
        assert (found / "deep" / "frozen").read_text() == "too"
        assert {path.name for path in (tmp_path / f"{step}").iterdir() if path.is_dir()} == {
            f"step-{step}"
        }
    second, third = (tmp_path / "storage" / saved[i].storage_id / saved[i].folder for i in (1, 2))
    is_shared = save_frozen == "once"
    for name in ("frozen", "deep/frozen"):
        assert (second / name).samefile(third / name) is is_shared
    assert not (second / "trained").samefile(third / "trained")
