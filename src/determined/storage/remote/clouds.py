"""The object stores that we know by name: S3, Google Cloud Storage, Azure blobs."""

from __future__ import annotations

import importlib.util
import posixpath
from typing import Any

from determined.storage._base import StrPath
from determined.storage.remote.storage import FsspecStorageManager


def normalize_prefix(prefix: str | None) -> str:
    """Return the prefix as a plain relative path, `""` for none."""
    if not prefix:
        return ""
    if ".." in prefix.split("/"):
        raise ValueError(f"`prefix` must not contain `..`, got {prefix!r}.")
    normal = posixpath.normpath(prefix).lstrip("/")
    return "" if normal == "." else normal


def _require(module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ImportError(
            f"Storage of type {extra} needs the package {module}: "
            f"pip install 'determined-pytorch[{extra}]'"
        )


class S3StorageManager(FsspecStorageManager):
    """Checkpoints in an S3 bucket, or in any store that speaks its protocol (`endpoint_url`)."""

    def __init__(
        self,
        bucket: str,
        access_key: str | None = None,
        secret_key: str | None = None,
        endpoint_url: str | None = None,
        prefix: str | None = None,
        temp_dir: StrPath | None = None,
    ) -> None:
        _require("s3fs", "s3")

        def open_filesystem() -> Any:
            import s3fs

            return s3fs.S3FileSystem(
                key=access_key,
                secret=secret_key,
                endpoint_url=endpoint_url,
                use_listings_cache=False,
                skip_instance_cache=True,
                config_kwargs={"retries": {"total_max_attempts": 1}},  # we retry ourselves
            )

        root = posixpath.join(bucket, normalize_prefix(prefix))
        super().__init__(open_filesystem, root, protocol="s3", temp_dir=temp_dir)

    def _put_directory(self, key: str) -> None:
        # An empty object whose name ends in `/`, as other tools expect it.
        self._call("write", key, "pipe_file", key, b"")


class GCSStorageManager(FsspecStorageManager):
    """Checkpoints in a Google Cloud Storage bucket, with the application default credentials."""

    def __init__(
        self, bucket: str, prefix: str | None = None, temp_dir: StrPath | None = None
    ) -> None:
        _require("gcsfs", "gcs")

        def open_filesystem() -> Any:
            import gcsfs

            return gcsfs.GCSFileSystem(use_listings_cache=False, skip_instance_cache=True)

        root = posixpath.join(bucket, normalize_prefix(prefix))
        super().__init__(open_filesystem, root, protocol="gs", temp_dir=temp_dir)


class AzureStorageManager(FsspecStorageManager):
    """Checkpoints in an Azure blob container, which is created if it is missing."""

    def __init__(
        self,
        container: str,
        connection_string: str | None = None,
        account_url: str | None = None,
        credential: str | None = None,
        temp_dir: StrPath | None = None,
    ) -> None:
        if (connection_string is None) == (account_url is None):
            raise ValueError(
                "checkpoint_storage of type azure needs `container` and exactly one of "
                "`connection_string` and `account_url`."
            )
        _require("adlfs", "azure")

        def open_filesystem() -> Any:
            import adlfs

            if connection_string is not None:
                options = {"connection_string": connection_string}
            else:
                host = str(account_url).split("//")[-1].strip("/")
                options = {"account_name": host.split(".")[0], "account_host": host}
                if credential is not None:
                    options["credential"] = credential
            filesystem = adlfs.AzureBlobFileSystem(**options, skip_instance_cache=True)
            if not filesystem.exists(container):
                filesystem.mkdir(container)
            return filesystem

        super().__init__(open_filesystem, container, protocol="abfs", temp_dir=temp_dir)
