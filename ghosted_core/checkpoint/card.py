"""The model card: what a person reads before loading the checkpoint."""

from ghosted_core.checkpoint.manifest import Manifest

_LOAD_PATCHED = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

# The operators at the cuts live in modeling_ghosted.py of this folder, hence trust_remote_code.
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
```

With Ghosted installed no code of this folder runs: `ghosted_core.load_patched(folder)`."""

_LOAD_STOCK = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
```"""

_IMAGES = (
    "The vision tower and its projector are the source's, unchanged: images still work, and "
    "`AutoModelForImageTextToText` loads it too. Layers were chosen, repaired and measured on text only. "
)


def model_card(manifest: Manifest) -> str:
    """README.md of a checkpoint in Hugging Face form."""
    sections = [_front_matter(manifest), _what(manifest), _cost(manifest), _how_to_load(manifest)]
    return "\n\n".join(sections) + "\n"


def _base_model(manifest: Manifest) -> str:
    reference = manifest.source.reference
    return str(reference.get("id") or reference.get("alias") or "a local model")


def _front_matter(manifest: Manifest) -> str:
    task = "image-text-to-text" if _sees_images(manifest) else "text-generation"
    lines = ["library_name: transformers", f"pipeline_tag: {task}", "tags: [ghosted, layer-pruning]"]
    if manifest.source.reference["kind"] == "hub":
        lines.append(f"base_model: {manifest.source.reference['id']}")
    return "\n".join(["---", *lines, "---"])


def _sees_images(manifest: Manifest) -> bool:
    return manifest.source.architecture.endswith("ForConditionalGeneration")


def _what(manifest: Manifest) -> str:
    removed = ", ".join(str(index) for index in manifest.plan.removed)
    source = manifest.source
    return (
        f"# {_base_model(manifest)} without {len(manifest.plan.removed)} of {source.layer_count} layers\n\n"
        f"Removed layers: {removed} (counted from 0; strategy `{manifest.spec.strategy.name}`). "
        f"{_repair(manifest)} "
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


def _cost(manifest: Manifest) -> str:
    names = {"dense": "unpruned", "pruned": "pruned, not repaired", "repaired": "this checkpoint"}
    rows = [
        f"| {text} | {value:.2f} |"
        for key, text in names.items()
        if (value := manifest.metrics.get(f"perplexity_{key}")) is not None
    ]
    if not rows:
        return "## What it costs\n\nNot evaluated."
    data = manifest.evaluation or {}
    windows = f"{data.get('windows')} windows of {data.get('length')} tokens of {data.get('dataset')}"
    return "\n".join(
        [
            "## What it costs",
            "",
            f"Perplexity on {windows}:",
            "",
            "| model | perplexity |",
            "|---|---|",
            *rows,
        ]
    )


def _how_to_load(manifest: Manifest) -> str:
    return "## Loading\n\n" + (_LOAD_PATCHED if manifest.operators else _LOAD_STOCK)
