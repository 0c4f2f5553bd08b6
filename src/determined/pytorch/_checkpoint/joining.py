"""The plain form of a checkpoint: all weights in `state_dict.pth`, as other programs expect it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import torch

from determined._contracts.checkpoint_layout import HASHES, MANIFEST, STATE, is_frozen_file
from determined._contracts.tensor_hashes import read_tensor_hashes
from determined.pytorch._checkpoint.files.reading import read_state
from determined.storage import Contents, FileDigest, HashingFile
from determined.storage._durable import write_file
from determined.storage._manifest import read_manifest


def join_files(folder: Path) -> bool:
    """Put frozen weights back into `state_dict.pth` of a downloaded checkpoint, in place.

    False if it has none in files of their own. Interrupted at any moment, it leaves what was there
    or what is to be, and may be called again.
    """
    if not (folder / "frozen").is_dir():
        return False
    draft = folder / f".{STATE}.new"
    changed: dict[str, FileDigest] = {}
    with HashingFile(draft) as file:
        torch.save(read_state(folder, allow_pickle=False), file)
    changed[STATE] = file.digest
    hashes = read_tensor_hashes(folder)
    draft.replace(folder / STATE)
    if hashes is not None:
        text = dataclasses.replace(hashes, frozen={}).to_json()
        changed[HASHES] = write_file(folder / HASHES, text)
    manifest = read_manifest(folder, folder.name)
    if manifest is not None:
        kept = [path for path in manifest.contents.files if not is_frozen_file(path)]
        kept += [path for path in manifest.contents.directories if path != "frozen/"]
        contents = manifest.limited_to(kept).contents.merged_with(Contents(changed))
        text = dataclasses.replace(manifest, contents=contents).to_json()
        write_file(folder / f".{MANIFEST}.new", text)
        (folder / f".{MANIFEST}.new").replace(folder / MANIFEST)
    shutil.rmtree(folder / "frozen")
    return True
