"""What `results.py` measures of each model, part by part, and how long what is left will take."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from notebook import Took, timed
from results_bench import Bench
from results_setting import C4, CALIBRATION, DENSE, TASK_TOKENS, Variant

from ghosted_core.checkpoint.write import unique_tensors
from ghosted_core.data import Windows, batches
from ghosted_core.evaluate.generation import continue_each
from ghosted_core.evaluate.likeness import likenesses
from ghosted_core.evaluate.perplexity import perplexities
from ghosted_core.evaluate.repetition import repetition
from ghosted_core.evaluate.speed import speeds
from ghosted_core.evaluate.task_protocol import Score, Subject
from ghosted_core.evaluate.tasks import TaskPlace, run_tasks
from ghosted_core.spec import HarnessTask

# Decoding reads all weights for one token: it takes as long as so many of a long text.
TOKENS_A_DECODED = 20
# A process that runs the harness, before its first item.
HARNESS_START = 15_000


@dataclass(frozen=True)
class Part:
    """Something to measure. `cost` counts passes of the dense model through a token of a long text."""

    name: str
    cost: float
    is_done: Callable[[], bool]
    run: Callable[[], None]


def parts_of(bench: Bench) -> list[Part]:
    """All of them, in an order in which each finds what it needs."""
    setting, notebook = bench.setting, bench.notebook
    main = [variant for variant in bench.variants if variant.is_main]
    found = [
        Part("layers", setting.fitted * setting.length * 0.8, lambda: "layers" in notebook, bench.choose)
    ]
    for text in CALIBRATION:
        sequences = max(setting.sweep) if text == C4 else setting.fitted
        cost = (sequences + setting.held_out) * setting.length * 0.8
        found.append(
            Part(f"calibration on {text}", cost, _fitted(bench, text), lambda text=text: bench.fit(text))
        )
    for variant in (one for one in main if one.trained):
        cost = setting.fitted * setting.length * 12.0
        found.append(Part("training", cost, bench.path(variant).exists, lambda one=variant: bench.train(one)))
    for start in range(0, setting.windows, setting.chunk):
        found += [_losses(bench, corpus, start) for corpus in bench.files]
    found += [_generation(bench, variant) for variant in main]
    found.append(_speed(bench, main))
    return found + [_tasks(bench, variant) for variant in main]


def work(parts: Sequence[Part], pace: float) -> None:
    """Everything is measured; `pace` is how many tokens a second pass through the dense model."""
    done_cost, seconds = pace * 30, 30.0
    for part in parts:
        if part.is_done():
            continue
        left = sum(one.cost for one in parts if not one.is_done())
        print(f"{part.name}; about {left / (done_cost / seconds) / 60:.0f} minutes are left", flush=True)
        started = time.monotonic()
        part.run()
        done_cost, seconds = done_cost + part.cost, seconds + time.monotonic() - started


def pace_of(bench: Bench) -> float:
    """Tokens of a long text that pass through the dense model in a second, now."""
    tokens = torch.arange(2 * bench.setting.length).view(2, -1)
    started = time.monotonic()
    with torch.no_grad():
        bench.dense(input_ids=tokens, use_cache=False)
    return tokens.numel() / (time.monotonic() - started)


def _fitted(bench: Bench, text: str) -> Callable[[], bool]:
    return lambda: not bench.wanted(text)


def losses_key(corpus: str, start: int, bench: Bench, variant: Variant) -> str:
    """Of the losses of the windows from `start` on."""
    return f"losses {corpus} {start}+{bench.setting.chunk} {variant.name}"


def generation_key(bench: Bench, variant: Variant) -> str:
    """Of its continuations."""
    return f"generation {len(bench.setting.prompts)}x{bench.setting.new_tokens} {variant.name}"


def speed_key(bench: Bench) -> str:
    """Of the speed of the main models."""
    setting = bench.setting
    return f"speed {setting.prompt_tokens}+{setting.decoded} x{setting.rounds} {_names(bench)}"


def _names(bench: Bench) -> str:
    return " ".join(variant.name for variant in bench.variants if variant.is_main)


def task_key(task: str, bench: Bench, variant: Variant) -> str:
    """Of the figures of a task."""
    return f"task {task} {bench.setting.limit} {variant.name}"


def _losses(bench: Bench, corpus: str, start: int) -> Part:
    def missing() -> list[Variant]:
        return [v for v in bench.variants if losses_key(corpus, start, bench, v) not in bench.notebook]

    def run() -> None:
        windows = bench.corpora[corpus]
        part = Windows(windows.tokens[start : start + bench.setting.chunk], windows.description)
        wanted = {v.name: bench.model(v) for v in missing()}
        with timed(f"{corpus}, windows from {start}, {len(wanted)} models") as took:
            found = _likenesses(bench, wanted, part) if corpus == C4 else _perplexities(bench, wanted, part)
        for variant in missing():
            key = losses_key(corpus, start, bench, variant)
            bench.notebook.put(key, found[variant.name], took.shared(len(wanted)))

    cost = bench.setting.chunk * bench.setting.length * len(bench.variants) * 0.6
    return Part(f"perplexity on {corpus}", cost, lambda: not missing(), run)


def _perplexities(bench: Bench, models: dict[str, Any], windows: Windows) -> dict[str, Any]:
    found = perplexities(bench.dense, models, batches(windows), lambda _: None)
    return {name: {"losses": one.losses} for name, one in found.items()}


def _likenesses(bench: Bench, models: dict[str, Any], windows: Windows) -> dict[str, Any]:
    others = {name: model for name, model in models.items() if name != DENSE}
    found = likenesses(bench.dense, others, batches(windows), lambda _: None)
    return {
        name: {
            "losses": one.perplexity.losses,
            "kl": one.likeness.divergence.value if one.likeness else 0.0,
            "agreement": one.likeness.agreement.value if one.likeness else 1.0,
        }
        for name, one in found.items()
    }


def _generation(bench: Bench, variant: Variant) -> Part:
    key, setting = generation_key(bench, variant), bench.setting

    def run() -> None:
        with timed(key) as took:
            found = continue_each(bench.model(variant), bench.tokenizer, setting.prompts, setting.new_tokens)
        texts = {one.prompt: one.text for one in found}
        figures = repetition(one.tokens for one in found)
        bench.notebook.put(key, {"texts": texts, "figures": figures}, took)

    cost = len(setting.prompts) * setting.new_tokens * TOKENS_A_DECODED
    return Part(key, cost, lambda: key in bench.notebook, run)


def _speed(bench: Bench, main: Sequence[Variant]) -> Part:
    setting, key = bench.setting, speed_key(bench)

    def run() -> None:
        models = {variant.name: bench.model(variant) for variant in main}
        prompt = bench.corpora[C4].tokens.flatten()[None, : setting.prompt_tokens]
        load = os.getloadavg()[0]
        with timed("speed") as took:
            found = speeds(
                models, prompt, new_tokens=setting.decoded, rounds=setting.rounds, advance=lambda _: None
            )
        figures = {
            name: {**asdict(speed), "bytes": sum(t.nbytes for t in unique_tensors(models[name]).values())}
            for name, speed in found.items()
        }
        threads = torch.get_num_threads()
        about = {"threads": threads, "dtype": str(bench.dense.dtype), "load_before": load}
        bench.notebook.put(key, {"models": figures, **about}, took)

    each = setting.prompt_tokens + setting.decoded * TOKENS_A_DECODED
    cost = len(main) * (setting.rounds + 1) * each
    return Part("speed", cost, lambda: key in bench.notebook, run)


def _tasks(bench: Bench, variant: Variant) -> Part:
    setting, notebook = bench.setting, bench.notebook

    def missing() -> list[str]:
        return [task for task in setting.tasks if task_key(task, bench, variant) not in notebook]

    def run() -> None:
        tasks = [HarnessTask(name=name, limit=setting.limit) for name in missing()]
        place = TaskPlace(bench.data / "tasks", bench.cache / "tasks")
        started = arrived = time.monotonic()
        figures: dict[str, Any] = {}
        with run_tasks(tasks, _subject(bench, variant), place) as said:
            for message in said:
                if not isinstance(message, Score):
                    continue
                if figures and message.task not in figures:
                    # A task's figures come together: those of the one before are complete.
                    _note(bench, variant, figures, arrived - started)
                    started = arrived
                arrived = time.monotonic()
                one = {"value": message.value, "error": message.standard_error, **message.detail}
                figures.setdefault(message.task, {})[message.metric] = one
        _note(bench, variant, figures, arrived - started)

    share = 1.0 - variant.count / 38  # The head weighs as much as eight layers.
    cost = HARNESS_START + share * sum(TASK_TOKENS[task] for task in missing()) * setting.limit / 100
    return Part(f"tasks of {variant.name}", cost, lambda: not missing(), run)


def _note(bench: Bench, variant: Variant, figures: dict[str, Any], seconds: float) -> None:
    """The task in `figures`, which is then empty, is in the notebook."""
    for task, found in figures.items():
        print(f"  {task}: {seconds:.0f} s", flush=True)
        # What another process took of the processors is not known here.
        bench.notebook.put(task_key(task, bench, variant), found, Took(wall=seconds))
    figures.clear()


def _subject(bench: Bench, variant: Variant) -> Subject:
    dense = Subject(source=bench.source, is_checkpoint=False, dtype="auto", device="cpu", variants=(DENSE,))
    if variant.name == DENSE:
        return dense
    plan = bench.plan(variant)
    pruned = dense.model_copy(
        update={"layer_count": plan.layer_count, "removed": plan.removed, "variants": ("pruned",)}
    )
    if not variant.is_fitted:
        return pruned
    return pruned.model_copy(update={"variants": ("repaired",), "repair": bench.path(variant)})
