"""The model card: what a person reads before loading the checkpoint."""

import re

from huggingface_hub import EvalResult, ModelCardData

from ghosted_core.checkpoint.figures import Row, artifact_variant, rows, shown_variants
from ghosted_core.checkpoint.licence import OTHER
from ghosted_core.checkpoint.manifest import Manifest
from ghosted_core.checkpoint.snippets import as_markdown, sees_images, snippets

NAMES = {
    "dense": "unpruned",
    "pruned": "pruned, not repaired",
    "repaired": "repaired",
    "finetuned": "repaired and trained",
}
_IMAGES = (
    "The vision tower and its projector are the source's, unchanged: images still work, and "
    "`AutoModelForImageTextToText` loads it too. Layers were chosen, repaired and measured on text only. "
)


def model_card(manifest: Manifest) -> str:
    """README.md of a checkpoint in Hugging Face form."""
    sections = [_front_matter(manifest), _what(manifest), _cost(manifest), _gate(manifest)]
    return "\n\n".join([*filter(None, sections), _how_to_load(manifest)]) + "\n"


def _base_model(manifest: Manifest) -> str:
    reference = manifest.source.reference
    return str(reference.get("id") or reference.get("alias") or "a local model")


def _front_matter(manifest: Manifest) -> str:
    """Metadata as the Hub reads them; its own library writes the YAML, so every text is quoted as needed."""
    source = manifest.source
    results = _results(manifest)
    card = ModelCardData(
        base_model=source.reference["id"] if source.reference["kind"] == "hub" else None,
        library_name="transformers",
        license=source.licence,
        license_name="see-file" if source.licence == OTHER and source.licence_file else None,
        license_link=source.licence_file if source.licence == OTHER else None,
        pipeline_tag="image-text-to-text" if _sees_images(manifest) else "text-generation",
        tags=["ghosted", "layer-pruning"],
        model_name=_title(manifest) if results else None,
        eval_results=results or None,
    )
    return f"---\n{card.to_yaml().strip()}\n---"


def _title(manifest: Manifest) -> str:
    removed, layers = len(manifest.plan.removed), manifest.source.layer_count
    return f"{_base_model(manifest)} without {removed} of {layers} layers"


def _results(manifest: Manifest) -> list[EvalResult]:
    """The checkpoint's own figures for the model index."""
    variant = artifact_variant(manifest)
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=_identifier(row),
            dataset_name=row.text or _identifier(row),
            metric_type=_kind(row.metric),
            metric_name=row.metric,
            metric_value=value,
        )
        for row in rows(manifest)
        if row.machine is None
        if (value := row.values.get(variant)) is not None
    ]


def _kind(metric: str) -> str:
    """The Hub's name for a kind of metric, where it has one."""
    if metric.startswith("perplexity"):
        return "perplexity"
    return "accuracy" if metric.startswith("acc_") else metric


def _identifier(row: Row) -> str:
    """What the Hub is to call the data of a metric: letters, digits, - and _."""
    named = row.text or row.task or "prompts"
    return re.sub(r"[^A-Za-z0-9_-]+", "-", str(named)).strip("-") or "text"


def _sees_images(manifest: Manifest) -> bool:
    return sees_images(manifest.source.architecture)


def _what(manifest: Manifest) -> str:
    removed = ", ".join(str(index) for index in manifest.plan.removed)
    source = manifest.source
    return (
        f"# {_title(manifest)}\n\n"
        f"Removed layers: {removed} (counted from 0; strategy `{manifest.spec.strategy.name}`). "
        f"{_repair(manifest)} "
        f"{_training(manifest)}"
        f"Parameters: {source.parameters:,} before, {manifest.parameters:,} after. "
        f"Source commit: {source.commit or 'not from the Hub'}. "
        f"{_IMAGES if _sees_images(manifest) else ''}"
        "Everything else is in `ghosted.json`."
    )


def _repair(manifest: Manifest) -> str:
    """Which repair, and where it lives."""
    recovery = manifest.spec.recovery
    if not manifest.fits:
        return "The cut is not repaired."
    named = f"Repair: {recovery.title} (`{recovery.name}`, {recovery.paper})"
    if manifest.operators:
        return f"{named}, {len(manifest.operators)} operator(s) at: {', '.join(manifest.operators)}."
    return f"{named}, folded into the weights: the model is of the stock class and needs no code."


def _training(manifest: Manifest) -> str:
    """What was trained after the repair, on how much text; ends with a space where anything was."""
    found = manifest.finetune
    if found is None:
        return ""
    named = {"operator": "the operators", "down_proj": "the last projection of the layer before each cut"}
    what = " and ".join(named[part] for part in found["trainable"].split("+"))
    return (
        f"Then {what} ({found['parameters']:,} parameters) trained towards the unpruned model for "
        f"{found['steps']} steps, {found['tokens_seen']:,} tokens of {found['tokens']:,} different ones, "
        f"in {found['seconds']:.0f} seconds; everything else stayed frozen. KL to it on held-out text: "
        f"{found['held_out_kl_before']:.3f} before, {found['held_out_kl']:.3f} after "
        f"(step {found['best_step']}). "
    )


def _cost(manifest: Manifest) -> str:
    found = rows(manifest)
    crashed = "" if manifest.tasks_complete else " Benchmark tasks were asked for, but not all ran."
    if not found:
        return f"## What it costs\n\nNot evaluated.{crashed}"
    variants = shown_variants(manifest)
    lines = [f"| {_cell(row)} | {' | '.join(_value(row, name) for name in variants)} |" for row in found]
    heading = f"| metric | {' | '.join(NAMES[name] for name in variants)} |"
    explained = (
        f"Standard errors after +-. On what and how each was measured: `report.html`, `report.json`.{crashed}"
    )
    return "\n".join(
        ["## What it costs", "", heading, "|---" * (len(variants) + 1) + "|", *lines, "", explained]
    )


def _cell(row: Row) -> str:
    return f"{row.metric}{f' ({_plain(row.text)})' if row.text else ''}"


def _value(row: Row, variant: str) -> str:
    value, error = row.values.get(variant), row.error(variant)
    if value is None:
        return ""
    return f"{value:.4g}" if error is None else f"{value:.4g} +- {error:.2g}"


def _plain(text: str) -> str:
    """A name of a file or corpus, without what Markdown or a table would read as something else."""
    return re.sub(r"[^\w .+-]", "?", text)


def _gate(manifest: Manifest) -> str:
    if manifest.gate is None or manifest.gate["passed"]:
        return ""
    missed = [check["metric"] for check in manifest.gate["checks"] if not check["passed"]]
    return f"**This checkpoint missed its quality gate: {', '.join(missed)}.** It was kept to be looked at."


def _how_to_load(manifest: Manifest) -> str:
    found = snippets(operators=bool(manifest.operators), images=_sees_images(manifest))
    return "## Loading\n\n" + as_markdown(found)
