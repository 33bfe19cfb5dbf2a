"""How layers are chosen: one form a criterion, with its paper and parameters."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from ghosted_core.spec.amounts import INDICES, read_indices
from ghosted_core.spec.base import Frozen, Integer, Switch, read_named

IndexText = Annotated[str, Field(pattern=INDICES)]
Sequences = Annotated[Integer, Field(ge=1, le=65536)]
SequenceLength = Annotated[Integer, Field(ge=2, le=1_048_576)]


class Streamline(Frozen):
    """Remove the run of layers that changes the hidden state's direction least.

    Score of a start s: mean over tokens of cos(x_s, x_{s+n}); the highest wins, the first of equals.
    Starts are 1 .. L-n; without `keep_first` they are 0 .. L-n.
    """

    title: ClassVar[str] = "LLM-Streamline"
    paper: ClassVar[str | None] = "arXiv:2403.19135"

    name: Literal["streamline"] = "streamline"
    keep_first: Switch = True


class StreamlineChannel(Frozen):
    """Remove the run of layers whose input and output are most alike along the sequence.

    Score of a start s in 1 .. L-n-1: cosine of x_s and x_{s+n} along the sequence axis for each
    channel, mean over channels and sequences; the highest wins, the first of equals. The released
    code of Ghosted Layers and LinearPatch computes this; here it serves to reproduce their tables.
    """

    title: ClassVar[str] = "LLM-Streamline, channel-wise"
    paper: ClassVar[str | None] = "arXiv:2605.15491"

    name: Literal["streamline_channel"] = "streamline_channel"


class ShortGpt(Frozen):
    """Remove the layers of least block influence, wherever they are.

    BI_l = 1 - mean over tokens of cos(x_l, x_{l+1}); the n lowest go, the first of equals.
    """

    title: ClassVar[str] = "ShortGPT"
    paper: ClassVar[str | None] = "arXiv:2403.03853"

    name: Literal["shortgpt"] = "shortgpt"


class ShortGptChannel(Frozen):
    """Remove the layers of least block influence, measured along the sequence.

    1 - cosine of x_l and x_{l+1} along the sequence axis for each channel, mean over channels and
    sequences; the last layer is never scored and always stays. As the released code of Ghosted
    Layers computes it.
    """

    title: ClassVar[str] = "ShortGPT, channel-wise"
    paper: ClassVar[str | None] = "arXiv:2605.15491"

    name: Literal["shortgpt_channel"] = "shortgpt_channel"


class Angular(Frozen):
    """Remove the run of layers over which the last token turns least.

    Score of a start s in 0 .. L-n: mean over sequences of arccos(cos(x_s, x_{s+n})) / pi at the
    last token that is not padding; the lowest wins, the first of equals.
    """

    title: ClassVar[str] = "Angular distance"
    paper: ClassVar[str | None] = "arXiv:2403.17887"

    name: Literal["angular"] = "angular"


class Taylor(Frozen):
    """Remove the layers whose weights matter least to the loss, to first order.

    Sum of |W dL/dW| over the layer's weight matrices; gradients keep their sign while they are
    added up over the text. Looked at: the first `sequence_length` tokens of the first `sequences`
    calibration windows, or as much of that as there is. `protect` keeps the first 4 layers and the
    last 2.
    """

    title: ClassVar[str] = "Shortened LLaMA, Taylor"
    paper: ClassVar[str | None] = "arXiv:2402.02834"

    name: Literal["taylor"] = "taylor"
    protect: Switch = True
    sequences: Sequences = 10
    sequence_length: SequenceLength = 128


class Magnitude(Frozen):
    """Remove the layers with the smallest weights: sum of |W| over the layer's weight matrices.

    `protect` keeps the first 4 layers and the last 2.
    """

    title: ClassVar[str] = "Shortened LLaMA, magnitude"
    paper: ClassVar[str | None] = "arXiv:2402.02834"

    name: Literal["magnitude"] = "magnitude"
    protect: Switch = True


class PerplexityWithout(Frozen):
    """Remove the layers without which, one at a time, perplexity stays lowest.

    Looked at: the first `sequence_length` tokens of the first `sequences` calibration windows, or as
    much of that as there is. `protect` keeps the first 4 layers and the last 2.
    """

    title: ClassVar[str] = "Shortened LLaMA, perplexity"
    paper: ClassVar[str | None] = "arXiv:2402.02834"

    name: Literal["perplexity"] = "perplexity"
    protect: Switch = False
    sequences: Sequences = 10
    sequence_length: SequenceLength = 128


class Sleb(Frozen):
    """Remove, again and again, the layer whose removal costs least; the loss is measured anew each time.

    The first and the last layer stay. Looked at: the calibration windows, or of them the first
    `sequences` and of each the first `sequence_length` tokens. About n L evaluations of that text.
    """

    title: ClassVar[str] = "SLEB"
    paper: ClassVar[str | None] = "arXiv:2402.09025"

    name: Literal["sleb"] = "sleb"
    sequences: Sequences | None = None
    sequence_length: SequenceLength | None = None


class Reverse(Frozen):
    """Remove the deepest layers, without looking at the model.

    The last one stays, unless `keep_last` is false (as arXiv:2411.15558 has it).
    """

    title: ClassVar[str] = "Reverse order"
    paper: ClassVar[str | None] = "arXiv:2403.17887"

    name: Literal["reverse"] = "reverse"
    keep_last: Switch = True


class Explicit(Frozen):
    """Remove the layers that the user names: indices from 0, and ranges like '8-12' with both ends."""

    title: ClassVar[str] = "Explicit"
    paper: ClassVar[str | None] = None

    name: Literal["explicit"] = "explicit"
    indices: Annotated[
        tuple[Annotated[Integer, Field(ge=0)], ...],
        BeforeValidator(
            read_indices, json_schema_input_type=IndexText | list[Annotated[int, Field(ge=0)] | IndexText]
        ),
    ] = Field(min_length=1)

    @field_validator("indices")
    @classmethod
    def _in_order(cls, indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(indices))


AnyStrategy = (
    Streamline
    | StreamlineChannel
    | ShortGpt
    | ShortGptChannel
    | Angular
    | Taylor
    | Magnitude
    | PerplexityWithout
    | Sleb
    | Reverse
    | Explicit
)
# Names that stand for a choice with its defaults; 'explicit' has none.
StrategyName = Literal[
    "streamline",
    "streamline_channel",
    "shortgpt",
    "shortgpt_channel",
    "angular",
    "taylor",
    "magnitude",
    "perplexity",
    "sleb",
    "reverse",
]
Strategy = Annotated[
    Annotated[AnyStrategy, Field(discriminator="name")],
    BeforeValidator(read_named, json_schema_input_type=StrategyName | AnyStrategy),
]
STRATEGIES: tuple[type[AnyStrategy], ...] = (
    Streamline,
    StreamlineChannel,
    ShortGpt,
    ShortGptChannel,
    Angular,
    Taylor,
    Magnitude,
    PerplexityWithout,
    Sleb,
    Reverse,
    Explicit,
)
