"""Where commands that only look at models find them: folders, device, access."""

from dataclasses import dataclass, field
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ghosted_core.catalog import Catalog, builtin_catalog
from ghosted_core.checkpoint.load import load_model, load_tokenizer
from ghosted_core.checkpoint.source import ModelSource, resolve
from ghosted_core.data import Windows
from ghosted_core.model.families import SUPPORTED
from ghosted_core.recorder import Logged, Recorder, StageScope
from ghosted_core.spec import JobSpec, ModelReference
from ghosted_core.texts import read_texts


@dataclass(frozen=True)
class Workplace:
    """What looking at a model needs and the answer does not depend on; events go to `recorder`."""

    cache: Path
    recorder: Recorder
    device: str = "cpu"
    hub_token: str | None = field(default=None, repr=False)
    catalog: Catalog = field(default_factory=builtin_catalog)

    def log(self, message: str) -> None:
        """A sentence for whoever waits."""
        self.recorder.record(Logged(message))

    def source(self, reference: ModelReference) -> ModelSource:
        """The files of a model, of a supported type.

        Raises:
            SourceError: they cannot be had or must not be loaded.
        """
        return resolve(
            reference,
            catalog=self.catalog,
            cache=self.cache,
            hub_token=self.hub_token,
            log=self.log,
            supported=SUPPORTED,
        )

    def model(self, source: ModelSource, dtype: str) -> PreTrainedModel:
        """The model, on the device."""
        return load_model(source, dtype=dtype, device=self.device)  # type: ignore[arg-type]

    def calibration(
        self, spec: JobSpec, source: ModelSource, model: PreTrainedModel, scope: StageScope
    ) -> Windows:
        """The windows that criteria look at, without those to test or evaluate on.

        Raises:
            DataError: the text is missing, malformed or too short.
        """
        tokenizer: PreTrainedTokenizerBase = load_tokenizer(source)
        read = spec.calibration.model_copy(update={"held_out_sequences": 0})
        texts = read_texts(
            spec.model_copy(update={"calibration": read, "evaluation": None}),
            tokenizer,
            vocab_size=model.config.get_text_config().vocab_size,
            catalog=self.catalog,
            cache=self.cache,
            log=self.log,
        )
        scope.advance(1)
        return texts.calibration
