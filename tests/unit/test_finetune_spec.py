import json
from typing import Any

import pytest
from pydantic import ValidationError

from ghosted_core.errors import InvalidSpecError
from ghosted_core.spec import Finetune, JobSpec
from ghosted_core.texts import Texts, read_texts

PLAIN = {"model": "owner/model", "layers": 3}


def read(**changes: Any) -> JobSpec:
    return JobSpec.model_validate({**PLAIN, **changes})


@pytest.mark.parametrize("nothing", [{}, {"finetune": None}, {"finetune": False}])
def test_specs_without_training_read_and_digest_as_before(nothing: dict[str, Any]) -> None:
    """Jobs, caches and checkpoints of before know no such field, and still agree."""
    spec = read(**nothing)
    assert spec.finetune is None
    assert "finetune" not in spec.canonical_json()
    # Of the version before there was training.
    assert spec.model_copy(
        update={"model": JobSpec.model_validate({"model": "x", "layers": 3}).model}
    ).digest() == ("3839230bb56851000f49319a6812a92c701659e5e5bc4a925edc13d3073b3911")


@pytest.mark.parametrize("asked", [True, {}])
def test_training_has_defaults(asked: Any) -> None:
    """They survive the way through JSON."""
    spec = read(finetune=asked)
    assert spec.finetune == Finetune()
    assert JobSpec.model_validate_json(spec.canonical_json()) == spec
    assert spec.digest() != read().digest()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recovery": "none", "finetune": True}, "trains operators"),
        ({"recovery": "replace_me", "finetune": {"trainable": "operator+down_proj"}}, "trains operators"),
        ({"finetune": {"epochs": 0}}, "greater than or equal to 1"),
        ({"finetune": {"learning_rate": "1e-3"}}, "valid number"),
        ({"finetune": {"rank": 8}}, "Extra inputs"),
        ({"finetune": {"held_out_sequences": 0}}, "greater than or equal to 1"),
        (
            {
                "finetune": {"dataset": "c4-validation"},
                "evaluation": {"corpora": ["c4"]},
            },
            "would train on the text of the corpus 'c4'",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    """Before anything is fetched or computed, and the message names it."""
    with pytest.raises(ValidationError, match=said):
        read(**changes)


@pytest.mark.parametrize("recovery", ["none", "replace_me", "prune_and_comp", "ghosted", "linear_patch_diag"])
def test_the_projection_trains_with_every_repair(recovery: str) -> None:
    """It is there whatever repairs the cut."""
    assert read(recovery=recovery, finetune={"trainable": "down_proj"}).finetune is not None


def test_steps_and_looks_are_counted() -> None:
    """An incomplete batch is a step; the text is looked at before the first step and after the last."""
    finetune = Finetune(sequences=7, batch_size=2, epochs=3)
    assert (finetune.steps_an_epoch, finetune.steps, finetune.steps_between_looks) == (4, 12, 2)
    assert finetune.looks == 7
    assert Finetune(sequences=7, batch_size=2, epochs=3, evaluate_every=5).looks == 4


def test_paths_do_not_travel() -> None:
    """Of a local file only the name is in an artifact."""
    local = {"kind": "local", "path": "/home/someone/text.jsonl"}
    public = json.loads(read(finetune={"dataset": local}).public().canonical_json())
    assert public["finetune"]["dataset"] == {"kind": "local", "path": "text.jsonl"}


def test_the_longest_window_counts() -> None:
    """A model that reads too little is refused for it."""
    assert read(finetune={"sequence_length": 4096}).longest_window == ("finetune.sequence_length", 4096)


def texts(folder: Any, file: Any, **changes: Any) -> Texts:
    from transformers import AutoTokenizer

    from ghosted_core.catalog import builtin_catalog

    fields = {
        "layers": 2,
        "model": {"kind": "local", "path": str(folder)},
        "calibration": {
            "dataset": {"kind": "local", "path": str(file)},
            "sequences": 4,
            "sequence_length": 64,
        },
        "finetune": {"sequences": 5, "held_out_sequences": 2, "sequence_length": 32},
    }
    spec = JobSpec.model_validate(fields | changes)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return read_texts(spec, tokenizer, vocab_size=320, catalog=builtin_catalog(), cache=folder, log=print)


def test_training_reads_documents_of_its_own(tiny_folder: Any, text_file: Any) -> None:
    """None of calibration's, none of the evaluation's; documents begin with numbers here."""
    from transformers import AutoTokenizer

    found = texts(tiny_folder, text_file, evaluation={"windows": 3})
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    assert found.training is not None
    assert found.training_held_out is not None
    assert found.evaluation is not None
    assert found.training.tokens.shape == (5, 32)
    assert found.training_held_out.tokens.shape == (2, 32)

    def numbers(*windows: Any) -> set[str]:
        text = "\n\n".join(tokenizer.decode(one.tokens.flatten()) for one in windows)
        # A document that is cut at either end has lost its number there, or is one of the two sides' alone.
        return {line.partition(".")[0] for line in text.split("\n\n") if line[:1].isdigit() and "." in line}

    ours = numbers(found.training, found.training_held_out)
    assert ours
    assert not ours & numbers(found.calibration, found.held_out)
    assert not ours & numbers(found.evaluation)


def test_a_file_of_two_names_is_one_text(tiny_folder: Any, text_file: Any, tmp_path: Any) -> None:
    """What calibration and training have seen is told by what is in a file, not by its path."""
    again = tmp_path / "again.txt"
    again.symlink_to(text_file)
    named = {"kind": "local", "path": str(again)}
    found = texts(
        tiny_folder,
        text_file,
        evaluation={"windows": 3, "dataset": named},
        finetune={"sequences": 5, "held_out_sequences": 2, "sequence_length": 32, "dataset": named},
    )
    assert found.training is not None
    assert found.evaluation is not None
    assert found.evaluation.description["part"] == "evaluation"
    plain = texts(tiny_folder, text_file, evaluation={"windows": 3})
    assert plain.training is not None
    assert found.training.tokens.equal(plain.training.tokens)


def test_a_corpus_under_another_name_is_not_trained_on(
    tiny_folder: Any, text_file: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused; one that is calibrated on is told of."""
    again = tmp_path / "again.txt"
    again.symlink_to(text_file)
    corpus = {"name": "mine", "dataset": {"kind": "local", "path": str(again)}, "windows": 2}
    with pytest.raises(InvalidSpecError, match="corpus 'mine'"):
        texts(tiny_folder, text_file, evaluation={"windows": 0, "corpora": [corpus]})
    texts(tiny_folder, text_file, evaluation={"windows": 0, "corpora": [corpus]}, finetune=None)
    assert "'mine' is also what calibration reads" in capsys.readouterr().out


def test_a_text_of_its_own_is_divided_with_the_evaluation(
    tiny_folder: Any, text_file: Any, tmp_path: Any
) -> None:
    """Where both name one set that calibration does not, its documents still serve one or the other."""
    from tests.tiny import write_text

    own = {"kind": "local", "path": str(write_text(tmp_path / "own.txt", seed=7))}
    found = texts(
        tiny_folder,
        text_file,
        evaluation={"windows": 3, "dataset": own},
        finetune={"sequences": 5, "held_out_sequences": 2, "dataset": own},
    )
    assert found.training is not None
    assert found.evaluation is not None
    assert found.training.description["part"] == "calibration"
    assert found.evaluation.description["part"] == "evaluation"
