"""What an artifact's report.json says beyond its row in the database: fits, spectra, training losses."""

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from services.artifacts.manifest import Manifest, ManifestFile
from services.artifacts.storage import ArtifactStore
from services.db.models import Artifact
from services.errors import StorageUnavailableError

REPORT = "report.json"
LONGEST_BYTES = 8 << 20
# Parsed reports are kept for so many artifacts: an artifact never changes.
KEPT = 64


class Part(BaseModel):
    """A part of the report; what a later version adds is not looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Cut(Part):
    """A removed run of layers [start, stop)."""

    start: int
    stop: int


class Spectrum(Part):
    """Some singular values of an operator, by rank, the largest first."""

    rank: tuple[float, ...] = ()
    singular_value: tuple[float, ...] = ()


class Fit(Part):
    """How well the repair of one boundary fits; see `ghosted_core.recovery.FitReport`."""

    boundary: Cut
    method: str
    tokens: int
    held_out_tokens: int = 0
    relative_residual: float | None = None
    held_out_relative_residual: float | None = None
    rank: int | None = None
    condition: float | None = None
    ridge: float | None = None
    correction_norm: float | None = None
    symmetric_share: float | None = None
    antisymmetric_share: float | None = None
    spectrum: Spectrum | None = None


class TrainingPoint(Part):
    """How far from its teacher the model was after so many steps; the loss is the mean since the last."""

    step: int
    held_out_kl: float | None = None
    loss: float | None = None


class Training(Part):
    """What was trained after the repair."""

    curve: tuple[TrainingPoint, ...] = ()


class Report(Part):
    """The parts of report.json that the database does not hold; `finetune` where something was trained."""

    fits: tuple[Fit, ...] = ()
    finetune: Training | None = None


@dataclass
class ReportShelf:
    """Reads reports from the store, and keeps the latest ones that it parsed.

    Who asks must have found the artifact's row first: that is where it is decided who may see it.
    """

    store: ArtifactStore
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: "OrderedDict[tuple[UUID, int], Report]" = field(default_factory=OrderedDict)

    def report(self, artifact: Artifact) -> Report | None:
        """The artifact's report; None where there is none that can be read now."""
        key = (artifact.job_id, artifact.attempt)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = _read(self.store, artifact)
        if found is not None:
            self._keep(key, found)
        return found

    def _keep(self, key: tuple[UUID, int], report: Report) -> None:
        with self._lock:
            self._kept[key] = report
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)


def _read(store: ArtifactStore, artifact: Artifact) -> Report | None:
    entry = _entry(artifact)
    if entry is None or entry.size_bytes > LONGEST_BYTES or artifact.objects_deleted_at is not None:
        return None
    try:
        content = _content(store, artifact.prefix + entry.path)
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            return None
        return Report.model_validate_json(content)
    except (StorageUnavailableError, ValidationError):
        # The rest of the page does without.
        return None


def _content(store: ArtifactStore, key: str) -> bytes:
    content = bytearray()
    for piece in store.read(key):
        content += piece
        if len(content) > LONGEST_BYTES:
            break
    return bytes(content)


def _entry(artifact: Artifact) -> ManifestFile | None:
    files = Manifest.model_validate(artifact.manifest).files
    return next((file for file in files if file.path == REPORT), None)
