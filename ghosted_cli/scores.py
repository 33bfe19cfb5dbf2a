"""`ghosted inspect --scores`: what every criterion of one pass would remove, and a heat map."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from ghosted_cli.heat_map import require_heat_map, write_heat_map
from ghosted_cli.render import ranges
from ghosted_cli.request import job_spec
from ghosted_cli.working import working
from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import JobSpec

if TYPE_CHECKING:
    from ghosted_core.criteria import LayerScores
    from ghosted_core.survey import Survey

USUAL_AMOUNT = "25%"


def scores_spec(model: Any, layers: str | None, calibration: Mapping[str, Any]) -> JobSpec:
    """What `survey` reads of a spec."""
    return job_spec(
        {
            "model": model,
            "layers": layers or USUAL_AMOUNT,
            "calibration": {**calibration, "held_out_sequences": 0},
            "recovery": "none",
            "evaluation": None,
        }
    )


def show_scores(
    spec: JobSpec, *, heat_map: Path | None, cache: Path, device: str, as_json: bool, title: str
) -> None:
    """One pass, then the scores on stdout and the picture in its file."""
    if heat_map is not None:
        require_heat_map(heat_map)
    from ghosted_core.survey import survey

    with working(cache, device) as place:
        found = survey(spec, place)
    cosines = found.similarity.token_mean().tolist()
    if heat_map is not None:
        write_heat_map(cosines, heat_map, title)
    if as_json:
        typer.echo(json.dumps(_document(found, cosines, heat_map), allow_nan=False))
    else:
        _print(found, heat_map)


def refuse_checkpoint(folder: Path) -> None:
    """Raise: scores are those of a model that layers can still be removed from."""
    raise InvalidSpecError(
        f"'{folder}' is a checkpoint of ours; scores are those of the model that it was made from.",
        advice="Give the source model; the checkpoint's own scores are in its ghosted.json.",
    )


def _document(found: "Survey", cosines: list[list[float]], heat_map: Path | None) -> dict[str, Any]:
    return {
        "layers": found.count,
        "layer_count": found.layer_count,
        "tokens": found.similarity.tokens,
        "sequences": found.similarity.sequences,
        "scores": [asdict(scores) for scores in found.scores],
        "refused": found.refused,
        "cosines": cosines,
        "heat_map": str(heat_map) if heat_map is not None else None,
    }


def _print(found: "Survey", heat_map: Path | None) -> None:
    console = Console(highlight=False)
    seen = found.similarity
    table = Table(
        title=f"{found.count} of {found.layer_count} layers, "
        f"from {seen.tokens:,} tokens in {seen.sequences} sequences"
    )
    for heading in ("criterion", "would remove", "best score", "ties"):
        table.add_column(heading)
    for scores in found.scores:
        table.add_row(scores.criterion, ranges(scores.removed), _best(scores), ranges(scores.ties))
    console.print(table)
    for scores in found.scores:
        console.print(score_lines(scores), markup=False, soft_wrap=True)
    for name, reason in found.refused.items():
        console.print(f"{name}: {reason}", markup=False, soft_wrap=True)
    if heat_map is not None:
        console.print(f"Heat map: {heat_map}", markup=False, soft_wrap=True)


def score_lines(scores: "LayerScores") -> str:
    """What the scores mean, and each candidate's, where there are any."""
    if not scores.candidates:
        return f"{scores.criterion}: {scores.meaning}"
    values = "  ".join(f"{candidate}: {score:.6g}" for candidate, score in scores.candidates)
    return f"{scores.criterion}, {scores.meaning} ({scores.best} goes):\n  {values}"


def _best(scores: "LayerScores") -> str:
    if not scores.candidates:
        return "-"
    pick = max if scores.best == "highest" else min
    return f"{pick(score for _, score in scores.candidates):.6g}"
