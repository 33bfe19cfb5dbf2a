"""The errors a user can meet.

GhostedError
├── InvalidSpecError          the request contradicts itself or the model
│   ├── UnsupportedRepairError  this repair has no place in this model or at this cut
│   └── UnknownTaskError      the harness has no such task
├── InvalidCatalogError       the operator's file of aliases cannot be used
├── OutputExistsError         the folder to write is taken
├── OutputUnusableError       nothing can be written there
├── SourceError               the model cannot be had or must not be loaded
│   ├── ModelNotFoundError    no such model, or no access to it
│   ├── GatedModelError       access must be granted first
│   ├── HubUnavailableError   the Hub does not answer
│   ├── UnsafeModelError      the files would run code or leave their folder
│   ├── UnsupportedModelError an architecture this version does not know
│   └── CorruptModelError     files missing, cut short or inconsistent
├── DataError                 the calibration or evaluation text
│   ├── DataNotFoundError
│   ├── DataGatedError        access must be granted first
│   ├── DataUnavailableError  where the text lies does not answer
│   ├── TooFewTokensError
│   └── TaskDataError         the items of a benchmark task
├── NumericsError             the mathematics has no usable answer
│   ├── NonFiniteError
│   └── IllConditionedError
├── HarnessError              benchmark tasks could not be run
│   └── HarnessMissingError   lm-evaluation-harness is not installed
├── QualityGateError          the result is worse than the spec allows
├── CheckpointError           a checkpoint of ours that is not what its manifest says
├── OutOfMemoryError         the device or the machine has too little memory
└── DiskFullError
"""

from typing import ClassVar


class GhostedError(Exception):
    """Anything that went wrong and can be said to the user.

    `code` is stable and fit for programs, `advice` says what to try next, `retryable` whether the
    same request may succeed later. `output` is what a foreign program printed: for whoever runs the machine.
    """

    code: ClassVar[str] = "internal"
    advice: ClassVar[str] = "This is a fault of ours; please report it with the log."
    retryable: ClassVar[bool] = False
    output: str = ""

    def __init__(self, message: str, *, advice: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = advice if advice is not None else type(self).advice


class InvalidSpecError(GhostedError):
    """The request contradicts itself or does not fit the model.

    `field` is the part of the spec that is wrong, where it is a single one.
    """

    code = "invalid_spec"
    advice = "Correct the named field and submit again."

    def __init__(self, message: str, *, advice: str | None = None, field: str | None = None) -> None:
        super().__init__(message, advice=advice)
        self.field = field


class UnsupportedRepairError(InvalidSpecError):
    """The repair has no place in this architecture, or at this cut."""

    code = "unsupported_repair"
    advice = "Choose 'ghosted', 'linear_patch_diag', 'linear_patch_rotate' or 'none': they fit every cut."


class UnknownTaskError(InvalidSpecError):
    """The installed harness has no benchmark task of that name."""

    code = "unknown_task"
    advice = "Check the spelling against the task list of lm-evaluation-harness."


class InvalidCatalogError(GhostedError):
    """The operator's file of aliases cannot be used."""

    code = "invalid_catalog"
    advice = "Correct the file that GHOSTED_CATALOG names, or leave the variable empty."


class OutputExistsError(GhostedError):
    """The folder to write already holds something."""

    code = "output_exists"
    advice = "Name another folder, or remove this one."


class OutputUnusableError(GhostedError):
    """The folder to write cannot be made."""

    code = "output_unusable"
    advice = "Name a folder that this user may write, on a disk that is not read-only."


class SourceError(GhostedError):
    """The model cannot be had or must not be loaded."""

    code = "model_source"
    advice = "Check the model's name and files."


class ModelNotFoundError(SourceError):
    """No such model, or none that this user may see: the Hub does not tell which."""

    code = "model_not_found"
    advice = "Check the spelling; if the model is private, give a token that may read it."


class GatedModelError(SourceError):
    """The model exists, but its owner grants access one by one."""

    code = "model_gated"
    advice = "Accept the model's terms on its Hub page, then give a token of that account."


class HubUnavailableError(SourceError):
    """The Hub did not answer, or answered with a fault of its own."""

    code = "hub_unavailable"
    retryable = True
    advice = "Try again in a few minutes, or use a local folder."


class UnsafeModelError(SourceError):
    """The model's files would run code, hold pickles or point outside their folder."""

    code = "unsafe_model"
    advice = "Use a repository of safetensors files of a stock transformers architecture."


class UnsupportedModelError(SourceError):
    """An architecture that this version does not know how to prune."""

    code = "unsupported_model"
    advice = "See the list of supported model types in the documentation."


class CorruptModelError(SourceError):
    """Files are missing, cut short or contradict each other."""

    code = "corrupt_model"
    advice = "Fetch the model again and compare the file sizes with the source."


class DataError(GhostedError):
    """The calibration or evaluation text cannot be used."""

    code = "data"
    advice = "Check the data set's name, format and content."


class DataNotFoundError(DataError):
    """No data set or file of that name."""

    code = "data_not_found"
    advice = "Name a known data set, or an existing .txt, .jsonl, .jsonl.gz or .parquet file."


class DataGatedError(DataError):
    """The data set exists, but its owner grants access one by one."""

    code = "data_gated"
    advice = "Use another data set: named ones are fetched without a token."


class DataUnavailableError(DataError):
    """Where the text lies does not answer, or answered with a fault of its own."""

    code = "data_unavailable"
    retryable = True
    advice = "Try again in a few minutes, or use a local file."


class TooFewTokensError(DataError):
    """The text is too short for what was asked of it."""

    code = "too_few_tokens"
    advice = "Give more text, fewer sequences or a shorter sequence length."


class TaskDataError(DataError):
    """The items of a benchmark task cannot be had."""

    code = "task_data"
    advice = "Put the task's files into the folder of task data; see the documentation for their names."


class HarnessError(GhostedError):
    """The benchmark tasks could not be run."""

    code = "harness"
    advice = "See the harness's last words, which a service has in its worker's log, or leave the tasks out."

    def __init__(self, message: str, *, advice: str | None = None, output: str = "") -> None:
        super().__init__(message, advice=advice)
        self.output = output


class HarnessMissingError(HarnessError):
    """lm-evaluation-harness is not installed here."""

    code = "harness_missing"
    advice = "Install it: pip install 'ghosted[tasks]'."


class QualityGateError(GhostedError):
    """The result is worse than the spec allows."""

    code = "quality_gate"
    advice = "Remove fewer layers, calibrate on more text, choose another repair, or loosen the gate."


class NumericsError(GhostedError):
    """The mathematics has no usable answer."""

    code = "numerics"
    advice = "Try more calibration text, a larger ridge, or dtype float32."


class NonFiniteError(NumericsError):
    """Infinity or not-a-number where a finite value is needed."""

    code = "non_finite"
    advice = "Run in float32 or bfloat16; if it persists, the source weights are broken."


class IllConditionedError(NumericsError):
    """A system that no solver could solve to working precision."""

    code = "ill_conditioned"
    advice = "Give more varied calibration text or a larger ridge."


class CheckpointError(GhostedError):
    """A checkpoint of ours that is not what its manifest says."""

    code = "checkpoint"
    advice = "Fetch or make the checkpoint again; do not serve this one."


class OutOfMemoryError(GhostedError):
    """The device or the machine has too little memory for this job."""

    code = "out_of_memory"
    advice = "Use shorter calibration and evaluation windows, a smaller model or dtype bfloat16."


class DiskFullError(GhostedError):
    """The disk has no room for the result."""

    code = "disk_full"
    advice = "Free the stated amount of space, or write to another disk."
