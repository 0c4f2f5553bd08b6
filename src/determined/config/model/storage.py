"""The `checkpoint_storage` section: where checkpoints are stored, and which are kept."""

from __future__ import annotations

import posixpath
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from determined.config.model.types import AtLeast0, Expected, Section, Text, matching

_absolute = matching(lambda path: PurePath(path).is_absolute(), "an absolute path")
AbsolutePath = Annotated[Text, _absolute, Expected("an absolute path")]
Prefix = Annotated[
    Text, matching(lambda prefix: ".." not in prefix.split("/"), "a prefix without `..`")
]
NonEmpty = Annotated[Text, Field(min_length=1)]


class Storage(Section):
    """The keys that every kind of storage takes."""

    save_experiment_best: AtLeast0 = Field(
        default=0, description="How many of the experiment's best checkpoints to keep."
    )
    save_trial_best: AtLeast0 = Field(
        default=1, description="How many of each trial's best checkpoints to keep."
    )
    save_trial_latest: AtLeast0 = Field(
        default=1, description="How many of each trial's latest checkpoints to keep."
    )
    gc: Literal["end", "continuous"] = Field(
        default="end",
        description="When to delete the rest: at the end of the experiment, or continuously.",
    )
    save_frozen: Literal["always", "once"] = Field(
        default="always",
        description="Whether each checkpoint has weights that are not trained in its "
        "`state_dict.pth`, or checkpoints share them in files of their own.",
    )


class SharedFS(Storage):
    """A folder that every machine can reach."""

    type: Literal["shared_fs"] = Field(description="A folder that every machine can reach.")
    host_path: AbsolutePath = Field(description="The folder, as an absolute path.")
    storage_path: Text | None = Field(default=None, description="A subfolder of `host_path`.")
    container_path: Text | None = Field(
        default=None, description="No effect: there are no containers."
    )
    propagation: Text | None = Field(
        default=None, description="No effect: there are no containers."
    )
    checkpoint_path: Text | None = Field(default=None, description="Old form of `storage_path`.")
    tensorboard_path: Text | None = Field(default=None, description="Old form of `storage_path`.")


class Directory(Storage):
    """A folder, always at the same path."""

    type: Literal["directory"] = Field(description="A folder.")
    container_path: NonEmpty = Field(description="The folder.")


class S3(Storage):
    """A bucket in S3 or an S3-compatible store."""

    type: Literal["s3"] = Field(description="A bucket in S3 or an S3-compatible store.")
    bucket: NonEmpty = Field(description="The bucket.")
    access_key: Text | None = Field(default=None, description="The access key; masked when shown.")
    secret_key: Text | None = Field(default=None, description="The secret key; masked when shown.")
    endpoint_url: Text | None = Field(
        default=None, description="The endpoint of an S3-compatible store."
    )
    prefix: Prefix | None = Field(default=None, description="The prefix of all object keys.")


class GCS(Storage):
    """A bucket in Google Cloud Storage."""

    type: Literal["gcs"] = Field(description="A bucket in Google Cloud Storage.")
    bucket: NonEmpty = Field(description="The bucket.")
    prefix: Prefix | None = Field(default=None, description="The prefix of all object keys.")


class Azure(Storage):
    """A container in Azure Blob Storage."""

    type: Literal["azure"] = Field(description="A container in Azure Blob Storage.")
    container: NonEmpty = Field(description="The container; created if missing.")
    connection_string: Text | None = Field(
        default=None,
        description="The connection string; masked when shown. Give either this or `account_url`.",
    )
    account_url: Text | None = Field(
        default=None, description="The account's URL. Give either this or `connection_string`."
    )
    credential: Text | None = Field(
        default=None, description="The credential for `account_url`; masked when shown."
    )


STORAGES: dict[str, type[Storage]] = {
    "shared_fs": SharedFS,
    "directory": Directory,
    "s3": S3,
    "gcs": GCS,
    "azure": Azure,
}


def _type(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return None if kind is None else f"({kind})"


AnyStorage = Annotated[
    Annotated[SharedFS, Tag("(shared_fs)")]
    | Annotated[Directory, Tag("(directory)")]
    | Annotated[S3, Tag("(s3)")]
    | Annotated[GCS, Tag("(gcs)")]
    | Annotated[Azure, Tag("(azure)")],
    Discriminator(_type),
]


def is_below(inner: str, root: str) -> bool:
    """Whether a path, relative or not, stays within a folder."""
    base = posixpath.normpath(root)
    joined = posixpath.normpath(posixpath.join(base, inner))
    return joined == base or joined.startswith(base.rstrip("/") + "/")
