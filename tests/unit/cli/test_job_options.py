"""What a job is to do, said to a command that does it here or to one that has a service do it."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from ghosted_cli.connection import ServiceOptions
from ghosted_cli.job_options import JobOptions
from ghosted_cli.main import app
from ghosted_cli.options import spread
from ghosted_cli.request import job_spec
from ghosted_cli.submitting import SubmissionOptions, service_text
from ghosted_core.errors import DataNotFoundError
from ghosted_core.spec import JobSpec, LocalText

SERVICE = frozenset(ServiceOptions.__dataclass_fields__)
SUBMISSION = frozenset(SubmissionOptions.__dataclass_fields__)
# What each command has of its own beside what a job is to do.
OWN = {
    "compress": {"out", "revision", "task_data", "device", "cache", "as_json"},
    "plan": {"out", "revision", "device", "cache", "as_json"},
    "submit": {"revision", "validate", *SERVICE, *SUBMISSION},
    "retry": {*SERVICE, *SUBMISSION},
}
EVERYTHING = JobOptions(
    layers="25%",
    strategy="taylor:protect=no",
    recovery="ghosted",
    weighting="skip_first",
    ridge="auto",
    solver="cholesky",
    fit="sequential",
    calibration="c4-train",
    sequences=7,
    sequence_length=33,
    held_out=2,
    seed=5,
    finetune=True,
    finetune_settings="epochs=2,dataset=wikitext2-train",
    evaluation="wikitext2-test",
    windows=3,
    corpus=["wikitext2", "c4"],
    tasks=["boolq,piqa:5"],
    limit=9,
    prompt=["The fox"],
    new_tokens=4,
    template="none",
    gate=["perplexity:max_ratio=2"],
    on_miss="keep",
    latency=True,
    dtype="float32",
)


SAID = {
    "model": "a/b",
    "layers": "25%",
    "strategy": {"name": "taylor", "protect": False},
    "recovery": {
        "name": "ghosted",
        "weighting": "skip_first",
        "ridge": "auto",
        "solver": "cholesky",
        "fit": "sequential",
    },
    "calibration": {
        "dataset": "c4-train",
        "sequences": 7,
        "sequence_length": 33,
        "held_out_sequences": 2,
        "seed": 5,
    },
    "finetune": {"epochs": 2, "dataset": "wikitext2-train"},
    "evaluation": {
        "dataset": "wikitext2-test",
        "windows": 3,
        "corpora": ["wikitext2", "c4"],
        "tasks": [{"name": "boolq", "limit": 9}, {"name": "piqa", "shots": 5, "limit": 9}],
        "prompts": ["The fox"],
        "new_tokens": 4,
        "template": "none",
        "gate": [{"metric": "perplexity", "max_ratio": 2}],
        "on_miss": "keep",
        "latency": True,
    },
    "dtype": "float32",
}


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """The options of a command: their types, help and defaults."""
    [command] = [one.callback for one in app.registered_commands if one.callback.__name__ == name]
    return {
        parameter.name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name not in {"model", "job_id"}
    }


@pytest.mark.parametrize("name", ["plan", "submit", "retry"])
def test_jobs_are_described_by_the_same_options_everywhere(name: str) -> None:
    """Names, help, types and defaults: where the job is done changes none of them."""
    here, there = options_of("compress"), options_of(name)
    shared = there.keys() - OWN[name]
    assert shared == here.keys() - OWN["compress"] == JobOptions.__dataclass_fields__.keys()
    assert {option: there[option] for option in shared} == {option: here[option] for option in shared}


def test_options_say_what_a_spec_says() -> None:
    """All of them, for a job here and for one of a service; without any, the spec has the defaults."""
    expected = JobSpec.model_validate(SAID)
    assert job_spec({"model": "a/b", **EVERYTHING.parts()}) == expected
    assert job_spec({"model": "a/b", **EVERYTHING.parts(service_text)}) == expected
    assert JobOptions().parts() == {}
    assert JobOptions(no_evaluation=True, corpus=["c4"], finetune=True).parts() == {
        "evaluation": None,
        "finetune": {},
    }
    assert JobOptions(remove="1,3").parts() == {"strategy": {"name": "explicit", "indices": (1, 3)}}
    assert JobOptions(ridge="1").parts() == {"recovery": {"name": "ghosted", "ridge": 1}}


def test_every_option_is_looked_at() -> None:
    """None is declared and then forgotten: each alone says something."""
    for name, field in JobOptions.__dataclass_fields__.items():
        said = {"remove": "1", "no_evaluation": True}.get(name, getattr(EVERYTHING, name))
        # A limit is one of tasks.
        beside = {"tasks": ["boolq"]} if name == "limit" else {}
        assert JobOptions(**beside, **{name: said}).parts() != JobOptions(**beside).parts(), field.name


def test_files_are_found_in_every_place(tmp_path: Path) -> None:
    """As texts to calibrate, train and evaluate on, and as corpora; one that is missing is refused."""
    file = tmp_path / "mine.txt"
    file.write_text("The fox.")
    named = JobOptions(
        calibration=str(file),
        finetune_settings=f"dataset={file}",
        evaluation=str(file),
        corpus=[f"mine={file}"],
    )
    parts = named.parts(service_text)
    local = LocalText(path=str(file)).model_dump()
    assert [parts[name]["dataset"] for name in ("calibration", "finetune", "evaluation")] == [local] * 3
    assert parts["evaluation"]["corpora"] == [{"name": "mine", "dataset": local}]
    with pytest.raises(DataNotFoundError):
        JobOptions(finetune_settings="dataset=./gone.txt").parts(service_text)


@dataclass(frozen=True)
class Pair:
    left: Annotated[int, typer.Option(help="One.")] = 1
    right: Annotated[str | None, typer.Option("--other", help="Two.")] = None


def test_a_bundle_of_options_is_one_value() -> None:
    """Its fields are options of the command, which gets them together."""
    seen: list[tuple[str, Pair, bool]] = []
    command = typer.Typer()

    @command.command()
    @spread
    def act(word: str, *, pair: Pair, last: bool = False) -> None:
        """Do it."""
        seen.append((word, pair, last))

    invoke = CliRunner().invoke
    assert invoke(command, ["go", "--left", "2", "--other", "x", "--last"]).exit_code == 0
    assert invoke(command, ["go"]).exit_code == 0
    assert seen == [("go", Pair(2, "x"), True), ("go", Pair(), False)]
    assert invoke(command, ["go", "--left", "two"]).exit_code == 2
    assert "Do it." in invoke(command, ["--help"]).output
