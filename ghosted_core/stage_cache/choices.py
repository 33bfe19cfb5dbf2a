"""Notes what criteria choose, for whoever asks before the next run; see `ghosted_core.choices`."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ghosted_core.catalog import Catalog
from ghosted_core.choices import SHARED, Choices, choices_key, form_of
from ghosted_core.criteria import Evidence, Findings, criterion_for
from ghosted_core.errors import InvalidSpecError
from ghosted_core.recorder import StageScope
from ghosted_core.scoring import Gathering, Recall, Subject
from ghosted_core.spec import (
    Angular,
    AnyStrategy,
    JobSpec,
    Magnitude,
    ShortGpt,
    ShortGptChannel,
    Streamline,
    StreamlineChannel,
    Taylor,
)
from ghosted_core.stage_cache.port import StageCache
from ghosted_core.stage_cache.scores import known_losses

FORMS: tuple[AnyStrategy, ...] = (
    Streamline(),
    Streamline(keep_first=False),
    StreamlineChannel(),
    ShortGpt(),
    ShortGptChannel(),
    Angular(),
    Magnitude(),
    Magnitude(protect=False),
    Taylor(),
    Taylor(protect=False),
)


def noting(recall: Recall, spec: JobSpec, catalog: Catalog, cache: StageCache) -> Recall:
    """As `recall`, and afterwards `cache` has what every criterion chooses that looks at the same."""
    key = choices_key(spec, catalog)
    if key is None:
        return recall

    @contextmanager
    def noted(gathering: Gathering, subject: Subject, scope: StageScope) -> Iterator[Findings]:
        with recall(gathering, subject, scope) as findings:
            yield findings
        found = _all_choices(spec.strategy, subject, findings)
        # Nothing of the job hangs on it.
        with suppress(OSError):
            cache.put(key, lambda path: _write(path, found))

    return noted


def _write(path: Path, found: Choices) -> None:
    path.write_bytes(found.to_bytes())


def _all_choices(strategy: AnyStrategy, subject: Subject, findings: Findings) -> Choices:
    if subject.criterion.evidence is Evidence.LOSSES:
        findings = Findings(losses_without=Known(known_losses(findings)))
        forms: tuple[AnyStrategy, ...] = (strategy,)
    else:
        forms = tuple(form for form in FORMS if SHARED[form.name] == SHARED[strategy.name])
    found = {form_of(form): _by_count(form, subject.layer_count, findings) for form in forms}
    return Choices(subject.layer_count, found)


def _by_count(form: AnyStrategy, layer_count: int, findings: Findings) -> dict[int, tuple[int, ...]]:
    criterion, found = criterion_for(form), {}
    for count in range(1, layer_count):
        try:
            found[count] = criterion.choose(count, layer_count, findings).removed
        except (InvalidSpecError, LookupError):
            # It cannot remove that many, or not by what is known: more is no easier.
            break
    return found


class Known:
    """Losses that were measured; others are not."""

    def __init__(self, losses: Mapping[tuple[int, ...], float]) -> None:
        self._losses = losses

    def __call__(self, removed: Collection[int], candidates: Collection[int]) -> dict[int, float]:
        """The loss without `removed` and each of `candidates`. Raises LookupError for what is not known."""
        return {layer: self._losses[tuple(sorted({*removed, layer}))] for layer in candidates}
