"""Two models side by side: quality on the same windows, size, speed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ghosted_core.checkpoint.guard import check_directory
from ghosted_core.checkpoint.load import load_tokenizer
from ghosted_core.checkpoint.manifest import MANIFEST_NAME, Manifest, read_manifest
from ghosted_core.checkpoint.patched import load_patched
from ghosted_core.checkpoint.source import ModelSource
from ghosted_core.data import Documents, Part, Windows, batches, read_documents, token_windows
from ghosted_core.device import set_aside
from ghosted_core.errors import InvalidSpecError
from ghosted_core.evaluate.latency import circumstances, weight_bytes
from ghosted_core.evaluate.mean import Mean
from ghosted_core.evaluate.memory import Peak, PeakRequest, peak_of
from ghosted_core.evaluate.perplexity import Perplexity, perplexity
from ghosted_core.evaluate.speed import Speed, speeds
from ghosted_core.evaluate.task_protocol import Subject
from ghosted_core.meter import ProcessMeter
from ghosted_core.model.families import SUPPORTED
from ghosted_core.recorder import Stage, stage
from ghosted_core.spec import LocalModel, ModelReference, TextReference
from ghosted_core.texts import hub
from ghosted_core.workplace import Workplace

USUAL_LENGTH = 2048
# A model by itself is measured like the dense one of a job.
ALONE = "dense"


@dataclass(frozen=True)
class Question:
    """What is measured, on what. `length` None: 2048 tokens, or as many as both models read.

    `memory`: whether each model is also loaded by a process of its own, for the memory that it takes.
    """

    dataset: TextReference
    windows: int = 16
    length: int | None = None
    seed: int = 0
    prompt_tokens: int = 128
    new_tokens: int = 32
    rounds: int = 5
    dtype: str = "auto"
    memory: bool = True


@dataclass(frozen=True)
class Side:
    """What was found of one model. `bytes_in_memory` are those of its weights, tied ones once.

    `peak_memory` is the most that it took while it worked, None if that was not measured; `threads`
    and `device` say on what it ran.
    """

    name: str
    architecture: str
    dtype: str
    parameters: int
    bytes_on_disk: int
    bytes_in_memory: int
    perplexity: Perplexity
    speed: Speed
    peak_memory: Peak | None
    device: str
    threads: int


@dataclass(frozen=True)
class Comparison:
    """Two sides; `nll_difference` is the mean over windows of B's NLL less A's, in nats a token.

    Its standard error is that of differences on the same windows, smaller than those of either side.
    """

    a: Side
    b: Side
    nll_difference: float
    nll_difference_standard_error: float
    text: dict[str, Any]


@dataclass(frozen=True)
class Opened:
    """A model that can be asked, from wherever it came.

    `source` are its files, `is_checkpoint` says whether they are a checkpoint of ours, `learned_from` are
    the fingerprints of the texts that such a one was calibrated and trained on.
    """

    source: ModelSource
    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    bytes_on_disk: int
    learned_from: frozenset[str] = frozenset()
    is_checkpoint: bool = False

    def subject(self, dtype: str, place: Workplace) -> Subject:
        """How another process loads it, on the same device."""
        return Subject(
            source=self.source,
            is_checkpoint=self.is_checkpoint,
            dtype=dtype,
            device=place.device,
            variants=(ALONE,),
        )


def compare(
    first: ModelReference, second: ModelReference, question: Question, place: Workplace
) -> Comparison:
    """Measure both models in one run; a reference to a folder of ours is loaded as such.

    Raises:
        InvalidSpecError: their tokenizers differ, so perplexities cannot be compared, or a window
            is longer than one of them reads.
        GhostedError: a model or the text cannot be used.
    """
    meter = ProcessMeter(torch.device(place.device))
    with stage(Stage.LOAD, place.recorder, meter, unit="steps", total=3) as scope:
        sides = []
        for reference in (first, second):
            sides.append(open_model(reference, question.dtype, place))
            scope.advance(1)
        windows = _windows(question, sides, place)
        scope.advance(1)
    with stage(Stage.EVALUATE, place.recorder, meter, total=2 * windows.tokens.numel()) as scope:
        found = [perplexity(side.model, scope.track(batches(windows))) for side in sides]
    turns = 2 * (question.rounds + 1)
    with stage(Stage.EVALUATE, place.recorder, meter, unit="speed runs", total=turns) as scope:
        measured = _speeds(sides, windows, question, scope.advance)
    peaks = _peaks(sides, question, place)
    a, b = (_side(*parts) for parts in zip(sides, found, measured, peaks, strict=True))
    difference = paired_difference(found[0].losses, found[1].losses)
    return Comparison(a, b, difference.value, difference.standard_error, windows.description)


def paired_difference(first: tuple[float, ...], second: tuple[float, ...]) -> Mean:
    """Of second - first, window by window."""
    return Mean.of(b - a for a, b in zip(first, second, strict=True))


def is_checkpoint(reference: ModelReference) -> bool:
    """Whether it is a folder that `compress` made."""
    return isinstance(reference, LocalModel) and (Path(reference.path) / MANIFEST_NAME).is_file()


def open_model(reference: ModelReference, dtype: str, place: Workplace) -> Opened:
    """The model, on the device; a folder of ours is checked and loaded as such.

    Raises:
        GhostedError: it cannot be had or must not be loaded.
    """
    if isinstance(reference, LocalModel) and is_checkpoint(reference):
        return _open_checkpoint(Path(reference.path), dtype, place)
    source = place.source(reference)
    model = place.model(source, dtype)
    tokenizer, size = load_tokenizer(source), _source_bytes(source)
    return Opened(source, _name(reference), model, tokenizer, size, is_checkpoint=False)


def _open_checkpoint(folder: Path, dtype: str, place: Workplace) -> Opened:
    manifest = read_manifest(folder)
    model = load_patched(folder, device=place.device, dtype=dtype)
    # Its files are checked by now, and its tokenizer is read like that of any local folder.
    source = ModelSource(LocalModel(path=str(folder)), folder, "directory", None, "")
    size = sum(e.size_bytes for name, e in manifest.files.items() if name.endswith(".safetensors"))
    return Opened(
        source, folder.name, model, load_tokenizer(source), size, _learned_from(manifest), is_checkpoint=True
    )


def _learned_from(manifest: Manifest) -> frozenset[str]:
    """Fingerprints of the texts that the checkpoint was calibrated and trained on."""
    texts = (manifest.calibration, (manifest.finetune or {}).get("text"))
    return frozenset(text["fingerprint"] for text in texts if text and "fingerprint" in text)


def _name(reference: ModelReference) -> str:
    if isinstance(reference, LocalModel):
        return Path(reference.path).name
    return str(getattr(reference, "id", None) or getattr(reference, "alias", ""))


def _source_bytes(source: ModelSource) -> int:
    if source.form == "gguf":
        return source.path.stat().st_size
    checked = check_directory(source.path, supported=SUPPORTED)
    return sum((source.path / name).stat().st_size for name in checked.weight_files)


def _windows(question: Question, sides: list[Opened], place: Workplace) -> Windows:
    documents = read_documents(
        question.dataset,
        catalog=place.catalog,
        cache=place.cache,
        log=place.log,
        fetch_hub=hub(place.cache, place.log),
    )
    length = _length(question, sides)
    part = _part(documents, sides)
    first, second = (_tokens(documents, side, question, length, part) for side in sides)
    if not torch.equal(first.tokens, second.tokens):
        raise InvalidSpecError(
            "The tokenizers of the two models make different tokens of the same text, so their "
            "perplexities cannot be compared.",
            advice="Compare a model with what was made of it, or two models with one tokenizer.",
        )
    return first


def _tokens(documents: Documents, side: Opened, question: Question, length: int, part: Part) -> Windows:
    return token_windows(
        documents,
        side.tokenizer,
        length=length,
        count=question.windows,
        seed=question.seed,
        part=part,
        vocab_size=side.model.config.get_text_config().vocab_size,
    )


def _part(documents: Documents, sides: list[Opened]) -> Part:
    """A set that a side was calibrated or trained on is used only where neither ever looks."""
    return "evaluation" if any(documents.fingerprint in side.learned_from for side in sides) else "all"


def _length(question: Question, sides: list[Opened]) -> int:
    texts = (side.model.config.get_text_config() for side in sides)
    limit = min(getattr(text, "max_position_embeddings", None) or USUAL_LENGTH for text in texts)
    wanted = question.length or min(limit, USUAL_LENGTH)
    if max(wanted, question.prompt_tokens + question.new_tokens) > limit:
        raise InvalidSpecError(
            f"A window of {wanted} tokens, or {question.prompt_tokens} + {question.new_tokens} to measure "
            f"speed, is more than the {limit} tokens that both models read.",
            advice="Choose shorter windows, prompts or continuations.",
        )
    return wanted


def _speeds(
    sides: list[Opened], windows: Windows, question: Question, advance: Callable[[int], None]
) -> list[Speed]:
    """Of each side, on the first tokens of the text."""
    prompt = windows.tokens.flatten()[None, : question.prompt_tokens]
    models = {str(index): side.model for index, side in enumerate(sides)}
    found = speeds(models, prompt, new_tokens=question.new_tokens, rounds=question.rounds, advance=advance)
    return list(found.values())


def _peaks(sides: list[Opened], question: Question, place: Workplace) -> list[Peak | None]:
    """Of each side, by processes that have the device for their own meanwhile."""
    if not question.memory:
        return [None for _ in sides]
    with set_aside([side.model for side in sides]):
        return [_peak(side, question, place) for side in sides]


def _peak(opened: Opened, question: Question, place: Workplace) -> Peak | None:
    peak = peak_of(
        PeakRequest(
            subject=opened.subject(question.dtype, place),
            prompt_tokens=question.prompt_tokens,
            new_tokens=question.new_tokens,
        )
    )
    if peak is None:
        place.log(f"The memory of {opened.name} was not measured.")
    return peak


def _side(opened: Opened, found: Perplexity, speed: Speed, peak: Peak | None) -> Side:
    model = opened.model
    about = circumstances(model)
    return Side(
        name=opened.name,
        architecture=type(model).__name__,
        dtype=about["dtype"],
        parameters=model.num_parameters(),
        bytes_on_disk=opened.bytes_on_disk,
        bytes_in_memory=weight_bytes(model),
        perplexity=found,
        speed=speed,
        peak_memory=peak,
        device=about["device"],
        threads=about["threads"],
    )
