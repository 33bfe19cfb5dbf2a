"""Which layers go, as earlier runs found it: what a service can say without looking. Free of torch.

The evidence of a criterion is kept by the bits that determine it, which only the process that computes
knows. Beside it lies what every criterion would choose by it, under a key that the spec alone gives.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ghosted_core.catalog import Catalog, HubFile
from ghosted_core.spec import (
    AnyStrategy,
    CatalogModel,
    CatalogText,
    HubModel,
    JobSpec,
    LocalModel,
    LocalText,
    ModelReference,
    TextReference,
    UploadText,
)

# To be raised whenever criteria choose otherwise by the same evidence.
FORMAT = 1
MAX_BYTES = 1 << 20
COMMIT = re.compile(r"[0-9a-f]{40}")
# What criteria that look at the same share; each of the others has what it looks at for itself.
SHARED = {
    **dict.fromkeys(
        ("streamline", "streamline_channel", "shortgpt", "shortgpt_channel", "angular"), "similarity"
    ),
    "magnitude": "weights",
    "taylor": "gradients",
}


class _Kept(BaseModel):
    """The layers to remove, by the criterion's form and their number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layer_count: int
    removed: dict[str, dict[int, tuple[int, ...]]]


@dataclass(frozen=True)
class Choices:
    """What each criterion removes of a model of `layer_count` layers, by its form and how many go."""

    layer_count: int
    removed: Mapping[str, Mapping[int, tuple[int, ...]]]

    def of(self, strategy: AnyStrategy, count: int, layer_count: int) -> tuple[int, ...] | None:
        """The `count` layers that `strategy` removes, in order; None if that is not known."""
        found = self.removed.get(form_of(strategy), {}).get(count)
        if found is None or self.layer_count != layer_count:
            return None
        # Written by a process that reads strangers' files: what is no choice is none.
        possible = len(set(found)) == count and all(0 <= layer < layer_count for layer in found)
        return tuple(sorted(found)) if possible else None

    def to_bytes(self) -> bytes:
        """As it is kept."""
        kept = _Kept(layer_count=self.layer_count, removed={k: dict(v) for k, v in self.removed.items()})
        return kept.model_dump_json().encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Choices | None":
        """What `to_bytes` gave; None if it is something else."""
        try:
            kept = _Kept.model_validate_json(content)
        except ValidationError:
            return None
        return cls(kept.layer_count, kept.removed)


def form_of(strategy: AnyStrategy) -> str:
    """What distinguishes criteria that look at the same."""
    form = strategy.model_dump(mode="json", exclude={"sequences", "sequence_length"})
    return json.dumps(form, sort_keys=True, separators=(",", ":"))


def choices_key(spec: JobSpec, catalog: Catalog) -> str | None:
    """SHA-256, in hexadecimal, of what decides what criteria see; None where a name may change its meaning.

    That is a branch of a repository, and what lies in folders of the machine that computes.
    """
    model, text = _pinned_model(spec.model, catalog), _pinned_text(spec.calibration.dataset, catalog)
    shared = SHARED.get(spec.strategy.name)
    if model is None or text is None or spec.strategy.name in {"explicit", "reverse"}:
        return None
    looked_at = {name: getattr(spec.strategy, name, None) for name in ("sequences", "sequence_length")}
    facts = {
        "choices": FORMAT,
        "version": _version(),
        "model": model,
        "dtype": spec.dtype,
        "text": text,
        "calibration": spec.calibration.model_dump(mode="json", exclude={"dataset"}),
        "evidence": shared or form_of(spec.strategy),
        "looked_at": looked_at,
    }
    canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _pinned_model(reference: ModelReference, catalog: Catalog) -> Any:
    named = catalog.models.get(reference.alias) if isinstance(reference, CatalogModel) else reference
    if named is None or isinstance(named, LocalModel):
        return None
    if isinstance(named, HubModel):
        pinned = COMMIT.fullmatch(named.revision or "") is not None
        return named.model_dump(mode="json") if pinned else None
    return asdict(named)


def _pinned_text(reference: TextReference, catalog: Catalog) -> Any:
    if isinstance(reference, UploadText):
        return reference.sha256
    entry = catalog.texts.get(reference.alias) if isinstance(reference, CatalogText) else None
    if entry is None or isinstance(entry.source, LocalText):
        return None
    if isinstance(entry.source, HubFile) and entry.source.revision is None:
        return None
    return asdict(entry)


def _version() -> str:
    try:
        return version("ghosted")
    except PackageNotFoundError:
        return ""
