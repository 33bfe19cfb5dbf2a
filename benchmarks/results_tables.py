"""The tables of docs/results.md, out of the notebook of `results.py`."""

import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from results_bench import Bench
from results_parts import generation_key, losses_key, speed_key, task_key
from results_setting import C4, CALIBRATION, GHOSTED, MODEL, NONE, UNIFORM, Variant

from ghosted_core.evaluate.perplexity import Perplexity, summary

TEXTS = {
    C4: "C4 train",
    "wikitext2": "WikiText-2 test, articles that are not measured on",
    "boolq": "Wikipedia passages (`boolq-passages`)",
}
TITLES = {"wikitext2": "WikiText-2", "c4": "C4", "ptb": "PTB"}


def tables(bench: Bench, command: str) -> str:
    """All that was measured so far."""
    return "\n\n".join(
        [
            _about(bench, command),
            _perplexities(bench),
            _tasks(bench),
            _generation(bench),
            _speed(bench),
            _sweep(bench),
            _texts(bench),
        ]
    )


def _about(bench: Bench, command: str) -> str:
    setting = bench.setting
    layers = bench.notebook["layers"]
    cuts = "; ".join(f"n = {n}: {removed[0]}-{removed[-1]}" for n, removed in layers.items())
    took = bench.notebook.total()
    versions = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
    machine = f"{torch.get_num_threads()} threads on {os.cpu_count()} x {_processor()}"
    text = f"{setting.fitted} x {setting.length} tokens of C4 train (seed 0)"
    measured = f"Perplexity on the first {setting.windows} windows of {setting.length} tokens."
    return "\n".join(
        [
            f"`{command}`: {took.wall / 60:.0f} minutes in all, {machine}, {_dtype(bench)}, {versions}.",
            f"Model: `{MODEL}` of the catalog ({bench.source.path.name}).",
            f"Layers chosen by `streamline` on {text}: {cuts}.",
            f"Repairs fitted on the same text unless a table says otherwise. {measured}",
        ]
    )


def _dtype(bench: Bench) -> str:
    return str(bench.dense.dtype).removeprefix("torch.")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def label(variant: Variant) -> str:
    """As a row's heading."""
    weighting = "" if variant.weighting == UNIFORM else f", `{variant.weighting}`"
    return variant.repair + weighting + (" + finetune" if variant.trained else "")


def perplexity(bench: Bench, corpus: str, variant: Variant) -> Perplexity | None:
    """On all windows of the corpus, if all were measured."""
    losses: list[float] = []
    for start in range(0, bench.setting.windows, bench.setting.chunk):
        key = losses_key(corpus, start, bench, variant)
        if key not in bench.notebook:
            return None
        losses += bench.notebook[key]["losses"]
    return summary(losses, len(losses) * (bench.setting.length - 1))


def _likeness(bench: Bench, variant: Variant, figure: str) -> float | None:
    keys = [
        losses_key(C4, start, bench, variant)
        for start in range(0, bench.setting.windows, bench.setting.chunk)
    ]
    if C4 not in bench.files or not all(key in bench.notebook for key in keys):
        return None
    # Of parts of equal size.
    return sum(bench.notebook[key][figure] for key in keys) / len(keys)


def _perplexities(bench: Bench) -> str:
    """Main rows, the unrepaired models of the other counts, and other weightings of tokens."""
    rows = [v for v in bench.variants if v.is_main or v.repair == NONE or v.weighting != UNIFORM]
    dense = rows[0]
    head = [
        "",
        "n",
        *(TITLES[name] for name in bench.files),
        "damage left, C4",
        "KL, C4",
        "same next token, C4",
    ]
    lines = []
    for variant in sorted(rows, key=_place):
        found = [perplexity(bench, corpus, variant) for corpus in bench.files]
        none = Variant(NONE, variant.count)
        left = _left(*(perplexity(bench, C4, one) for one in (dense, none, variant)))
        lines.append(
            [
                label(variant),
                str(variant.count),
                *map(_with_error, found),
                "" if variant.count == 0 else _figure(left, "{:.2f}"),
                _figure(_likeness(bench, variant, "kl"), "{:.3f}"),
                _figure(_likeness(bench, variant, "agreement"), "{:.1%}"),
            ]
        )
    note = (
        "Perplexity with its standard error over windows (a few hundred tokens each: differences between "
        "rows, on the same windows, are much surer than the figures). Damage left: "
        "ln(ppl / dense) / ln(ppl of `none` / dense) at the same n."
    )
    return f"### Perplexity\n\n{_table(head, lines)}\n\n{note}"


def _place(variant: Variant) -> tuple[bool, bool, int, bool]:
    """The dense model first, then the count that has most rows; in each count the unrepaired model first."""
    return variant.count != 0, variant.count != Variant.count, variant.count, variant.repair != NONE


def _left(dense: Perplexity | None, none: Perplexity | None, found: Perplexity | None) -> float | None:
    if dense is None or none is None or found is None or none.nll == dense.nll:
        return None
    return (found.nll - dense.nll) / (none.nll - dense.nll)


def _tasks(bench: Bench) -> str:
    rows = [v for v in bench.variants if v.is_main]
    head = ["", "n", *bench.setting.tasks, "mean"]
    lines = []
    for variant in rows:
        found = [_accuracy(bench, task, variant) for task in bench.setting.tasks]
        known = [one["value"] for one in found if one is not None]
        mean = sum(known) / len(known) if len(known) == len(found) and known else None
        cells = [_figure(None if one is None else one["value"], "{:.1%}") for one in found]
        lines.append([label(variant), str(variant.count), *cells, _figure(mean, "{:.1%}")])
    note = (
        f"`acc` of lm-evaluation-harness, zero-shot, the first {bench.setting.limit} items of each task. The "
        "standard error of one figure is up to 5 points at 100 items, that of a mean of nine about 1.6: "
        "smaller differences say nothing."
    )
    return f"### Tasks\n\n{_table(head, lines)}\n\n{note}"


def _accuracy(bench: Bench, task: str, variant: Variant) -> Mapping[str, Any] | None:
    key = task_key(task, bench, variant)
    return bench.notebook[key].get("acc") if key in bench.notebook else None


def _generation(bench: Bench) -> str:
    setting = bench.setting
    head = ["", "n", "distinct-1", "distinct-2", "distinct-3", "longest repeat", f"`{setting.prompts[0]}`"]
    lines = []
    for variant in [v for v in bench.variants if v.is_main]:
        key = generation_key(bench, variant)
        if key not in bench.notebook:
            continue
        found = bench.notebook[key]
        figures = [found["figures"][f"distinct_{n}"] for n in (1, 2, 3)]
        cells = [_figure(one, "{:.2f}") for one in figures]
        longest = _figure(found["figures"]["longest_repeat"], "{:.1f}")
        text = _quoted(found["texts"][setting.prompts[0]])
        lines.append([label(variant), str(variant.count), *cells, longest, text])
    note = (
        f"Greedy, {setting.new_tokens} tokens, {len(setting.prompts)} prompts through the chat template: "
        "shares of different n-grams and the longest run of tokens that occurs twice, means over prompts."
    )
    return f"### Generation\n\n{_table(head, lines)}\n\n{note}"


def _quoted(text: str, longest: int = 120) -> str:
    plain = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return f"`{plain[:longest]}`" if plain else "(nothing)"


def _speed(bench: Bench) -> str:
    key, setting = speed_key(bench), bench.setting
    if key not in bench.notebook:
        return "### Latency\n\nNot measured yet."
    found = bench.notebook[key]
    head = ["", "n", "prefill, tokens/s", "first token, s", "decode, tokens/s", "weights, MB"]
    lines = []
    for variant in [v for v in bench.variants if v.is_main]:
        one = found["models"][variant.name]
        lines.append(
            [
                label(variant),
                str(variant.count),
                f"{one['prefill']:.0f} ({_span(one['prefill_range'])})",
                f"{one['prompt_tokens'] / one['prefill']:.3f}",
                f"{one['decode']:.1f} ({_span(one['decode_range'])})",
                f"{one['bytes'] / 1e6:.0f}",
            ]
        )
    note = (
        f"Median of {setting.rounds} rounds after one that does not count, slowest to fastest in brackets; "
        f"the models take turns. Prompt of {setting.prompt_tokens} tokens, {setting.decoded} decoded, one "
        f"sequence, {found['threads']} threads, {found['dtype'].removeprefix('torch.')}; load of the machine "
        f"before: {found['load_before']:.1f}."
    )
    return f"### Latency\n\n{_table(head, lines)}\n\n{note}"


def _span(pair: Sequence[float]) -> str:
    return f"{pair[0]:.0f}-{pair[1]:.0f}"


def _sweep(bench: Bench) -> str:
    variants = [Variant(GHOSTED, sequences=count) for count in bench.setting.sweep]
    rows = [
        [str(v.sequences), f"{v.sequences * bench.setting.length:,}", *_fit_cells(bench, v)] for v in variants
    ]
    head = ["sequences", "tokens", *_fit_head(bench)]
    note = (
        "Residuals: what of the shift X_post - X_pre is left, as a ratio of norms, on the tokens of the fit "
        "and on held-out ones."
    )
    return f"### How much calibration\n\n`ghosted`, n = {Variant.count}.\n\n{_table(head, rows)}\n\n{note}"


def _texts(bench: Bench) -> str:
    variants = [Variant(GHOSTED, sequences=bench.setting.fitted, text=text) for text in CALIBRATION]
    rows = [[TEXTS[v.text], *_fit_cells(bench, v)] for v in variants]
    head = ["calibrated on", *_fit_head(bench)]
    title = (
        f"`ghosted`, n = {Variant.count}, {bench.setting.fitted} sequences of {bench.setting.length} tokens."
    )
    return f"### Which calibration text\n\n{title}\n\n{_table(head, rows)}"


def _fit_head(bench: Bench) -> list[str]:
    return [*(TITLES[name] for name in bench.files), "residual", "held-out"]


def _fit_cells(bench: Bench, variant: Variant) -> list[str]:
    found = [perplexity(bench, corpus, variant) for corpus in bench.files]
    key = f"residuals {variant.name}"
    residuals = bench.notebook.get(key, (None, None))
    return [*map(_with_error, found), *(_figure(one, "{:.3f}") for one in residuals)]


def _with_error(found: Perplexity | None) -> str:
    if found is None:
        return "-"
    # That of e^nll is e^nll times that of the nll.
    return f"{found.value:.2f} +- {found.value * found.standard_error:.2f}"


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None or not math.isfinite(value) else form.format(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
