"""The report of a checkpoint: one page without scripts, and the same as JSON."""

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ghosted_core.checkpoint.figures import Row, artifact_variant, rows, shown_variants
from ghosted_core.checkpoint.manifest import Manifest
from ghosted_core.drawing import Bars, Curve, Line, bars, curve, lines

HTML_NAME, JSON_NAME = "report.html", "report.json"
# What the report of a manifest does not repeat: the files' list, and answers for other programs.
LEFT_OUT = {"files", "probe", "format"}


@dataclass(frozen=True)
class Fit:
    """The repair of one boundary, and the singular values of its operators, if it has any."""

    name: str
    facts: Sequence[tuple[str, str]]
    spectra: Sequence[tuple[str, Curve]]


@dataclass(frozen=True)
class Trained:
    """What was trained after the repair, and the divergence from the teacher over steps."""

    facts: Sequence[tuple[str, str]]
    held_out: Line | None
    loss: Line | None


@dataclass(frozen=True)
class Page:
    """All that the template shows; every text in it is as hostile as a model's author likes."""

    title: str
    artifact: str
    facts: Sequence[tuple[str, str]]
    misses: Sequence[str]
    checks: Sequence[Mapping[str, Any]]
    rows: Sequence[Row]
    scores: Bars | None
    fits: Sequence[Fit]
    training: Trained | None
    generations: Mapping[str, Mapping[str, str]]
    texts: Sequence[tuple[str, Mapping[str, Any]]]
    versions: Mapping[str, str]


def report_files(manifest: Manifest) -> dict[str, str]:
    """The report's files by name."""
    return {HTML_NAME: report_html(manifest), JSON_NAME: report_json(manifest)}


def report_json(manifest: Manifest) -> str:
    """Everything that is in the page, and the spec: the manifest without its list of files."""
    document = manifest.model_dump(mode="json", exclude=LEFT_OUT)
    shown = [
        {"metric": row.metric, "values": dict(row.values), "details": dict(row.details)}
        for row in rows(manifest)
    ]
    document = {"report": 1, "artifact": artifact_variant(manifest), "rows": shown, **document}
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def report_html(manifest: Manifest) -> str:
    """The page: it loads nothing from anywhere, runs nothing, and escapes every text."""
    environment = Environment(
        loader=PackageLoader("ghosted_core", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters["figure"] = figure
    return (
        environment.get_template(HTML_NAME).render(page=_page(manifest), variants=shown_variants(manifest))
        + "\n"
    )


def figure(value: float | None) -> str:
    """A number with four digits; a dash where there is none."""
    return "-" if value is None else f"{value:.4g}"


def _printable(value: Any) -> Any:
    """Texts without control characters, or marks that turn the direction of what follows."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(one if one in "\n\t" or _is_visible(one) else "\ufffd" for one in value)


def _is_visible(character: str) -> bool:
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs"}


def _page(manifest: Manifest) -> Page:
    gate = manifest.gate or {"checks": []}
    return Page(
        title=_title(manifest),
        artifact=artifact_variant(manifest),
        facts=_facts(manifest),
        misses=[check["metric"] for check in gate["checks"] if not check["passed"]],
        checks=gate["checks"],
        rows=rows(manifest),
        scores=_scores(manifest),
        fits=[_fit(fit) for fit in manifest.fits],
        training=None if manifest.finetune is None else _training(manifest.finetune),
        generations=manifest.generations,
        texts=_texts(manifest),
        versions=manifest.versions,
    )


def _title(manifest: Manifest) -> str:
    reference = manifest.source.reference
    name = reference.get("id") or reference.get("alias") or reference.get("path") or "a model"
    return f"{name} without {len(manifest.plan.removed)} of {manifest.source.layer_count} layers"


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    source, plan, spec = manifest.source, manifest.plan, manifest.spec
    ratio = manifest.metrics.get("damage_ratio")
    facts = [
        ("Removed layers", ", ".join(str(index) for index in plan.removed)),
        ("Chosen by", f"{spec.strategy.title} ({spec.strategy.name})"),
        ("Repaired by", f"{spec.recovery.title} ({spec.recovery.name})"),
        ("Parameters", f"{source.parameters:,} before, {manifest.parameters:,} after"),
        ("dtype", manifest.dtype),
        ("Source", f"{source.architecture}, commit {source.commit or 'unknown'}"),
        ("Licence of the source", source.licence or "not stated"),
        ("Spec", manifest.spec_digest),
    ]
    if not manifest.tasks_complete:
        facts.append(("Benchmark tasks", "asked for, but not all ran: the harness crashed"))
    if ratio is not None:
        facts.append(("Damage left: ln(ppl repaired / dense) / ln(ppl pruned / dense)", f"{ratio:.3f}"))
    after = manifest.metrics.get("damage_ratio_finetuned")
    if after is not None:
        facts.append(("The same after training", f"{after:.3f}"))
    return facts


def _scores(manifest: Manifest) -> Bars | None:
    """The candidates' scores, those of the choice marked."""
    scores = manifest.plan.scores
    candidates = scores.get("candidates") or ()
    found = [(int(index), float(value)) for index, value in candidates if value is not None]
    found = [(index, value) for index, value in found if math.isfinite(value)]
    if not found:
        return None
    return bars(found, marked=set(manifest.plan.removed), title=str(scores.get("meaning", "")))


def _fit(fit: Mapping[str, Any]) -> Fit:
    boundary = fit["boundary"]
    spectra = []
    for key, when in (("spectrum", "as fitted"), ("spectrum_finetuned", "after training")):
        found = fit.get(key)
        drawn = curve(found["rank"], found["singular_value"]) if found else None
        if drawn is not None:
            spectra.append((when, drawn))
    return Fit(f"[{boundary['start']}, {boundary['stop']})", _told(fit), spectra)


def _training(found: Mapping[str, Any]) -> Trained:
    points = found["curve"]
    held_out, loss = lines(
        [(point["step"], point["held_out_kl"]) for point in points],
        # The loss of a point is the mean since the point before.
        [(point["step"], point["loss"]) for point in points if point["loss"] is not None],
    )
    tensors = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in found["tensors"].items())
    return Trained([*_told(found), ("trained tensors", tensors)], held_out, loss)


def _told(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a record says in a word or a number, for people to read."""
    return [
        (name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value))
        for name, value in record.items()
        if isinstance(value, str | int | float)
    ]


def _texts(manifest: Manifest) -> list[tuple[str, Mapping[str, Any]]]:
    """On what text the job calibrated and evaluated, and how it became windows."""
    training = None if manifest.finetune is None else manifest.finetune["text"]
    named = [
        ("calibration", manifest.calibration),
        ("training", training),
        ("evaluation", manifest.evaluation),
    ]
    return [(name, text) for name, text in [*named, *manifest.corpora.items()] if text is not None]
