"""Activations of all tokens, on disk: for the repairs that look at them more than once."""

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from ghosted_core.errors import DiskFullError


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A private folder in `parent`, gone afterwards, whatever happens meanwhile."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=".ghosted-scratch-") as folder:
        yield Path(folder)


def require_scratch(folder: Path, size_bytes: int) -> None:
    """Make sure that `size_bytes` of activations will fit in `folder`.

    Raises:
        DiskFullError: they will not.
    """
    free = shutil.disk_usage(folder).free
    if free < size_bytes:
        raise DiskFullError(
            f"The activations need {size_bytes / 1e9:.1f} GB of scratch space, "
            f"where {free / 1e9:.1f} GB are free."
        )


class ActivationFile:
    """Rows of one width, appended in order and then read by slice or index without being loaded.

    Raw numbers in the model's dtype, nothing else: what is read is what was written, bit for bit.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shape = (0, 0)
        self._dtype = torch.float32

    def append(self, rows: Tensor) -> None:
        """Add rows of shape (..., width).

        Raises:
            DiskFullError: the disk filled up.
        """
        flat = rows.detach().flatten(0, -2).cpu().contiguous()
        try:
            # Not through the mapping: writing there on a full disk would kill the process.
            with self._path.open("ab") as file:
                file.write(flat.view(torch.uint8).numpy().data)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise DiskFullError("The disk filled up while activations were kept.") from error
            raise
        self._shape = (self._shape[0] + flat.shape[0], flat.shape[1])
        self._dtype = flat.dtype

    def rows(self) -> Tensor:
        """All rows, (count, width), mapped from disk; the operating system reads what is touched."""
        count, width = self._shape
        if not count:
            return torch.empty(0, width, dtype=self._dtype)
        mapped = torch.from_file(str(self._path), shared=False, size=count * width, dtype=self._dtype)
        return mapped.view(count, width)

    def remove(self) -> None:
        """The file is gone; rows that are still mapped stay readable."""
        self._path.unlink(missing_ok=True)
