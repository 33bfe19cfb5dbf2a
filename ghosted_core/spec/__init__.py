"""What decides the result of a job, as frozen values without torch.

The same `JobSpec` is the body of an API request, the file of a command line and the record in a
checkpoint's manifest. Whatever does not change the result (device, folders, batch size, tokens)
is not in it.
"""

from ghosted_core.spec.amounts import (
    LayerAmount,
    parse_indices,
    resolve_amount,
)
from ghosted_core.spec.base import (
    Frozen,
)
from ghosted_core.spec.evaluation import (
    LATENCY_METRICS,
    NAMED_CORPORA,
    Bound,
    Evaluation,
    HarnessTask,
    Latency,
    PerplexityCorpus,
    metric_key,
)
from ghosted_core.spec.finetuning import (
    Finetune,
)
from ghosted_core.spec.job import (
    DEFAULT_TEXT,
    Calibration,
    JobSpec,
)
from ghosted_core.spec.recoveries import (
    OPERATORS,
    RECOVERIES,
    Ghosted,
    LinearPatchDiag,
    LinearPatchRotate,
    NoRecovery,
    PruneAndComp,
    Recovery,
    ReplaceMe,
    ReplaceMeCosine,
)
from ghosted_core.spec.references import (
    ALIAS,
    HUB_ID,
    REVISION,
    Alias,
    CatalogModel,
    CatalogText,
    HubModel,
    LocalModel,
    LocalText,
    ModelReference,
    TextReference,
    UploadText,
    is_hub_id,
)
from ghosted_core.spec.strategies import (
    STRATEGIES,
    Angular,
    AnyStrategy,
    Explicit,
    Magnitude,
    PerplexityWithout,
    Reverse,
    ShortGpt,
    ShortGptChannel,
    Sleb,
    Strategy,
    Streamline,
    StreamlineChannel,
    Taylor,
)

__all__ = [
    "ALIAS",
    "DEFAULT_TEXT",
    "HUB_ID",
    "LATENCY_METRICS",
    "NAMED_CORPORA",
    "OPERATORS",
    "RECOVERIES",
    "REVISION",
    "STRATEGIES",
    "Alias",
    "Angular",
    "AnyStrategy",
    "Bound",
    "Calibration",
    "CatalogModel",
    "CatalogText",
    "Evaluation",
    "Explicit",
    "Finetune",
    "Frozen",
    "Ghosted",
    "HarnessTask",
    "HubModel",
    "JobSpec",
    "Latency",
    "LayerAmount",
    "LinearPatchDiag",
    "LinearPatchRotate",
    "LocalModel",
    "LocalText",
    "Magnitude",
    "ModelReference",
    "NoRecovery",
    "PerplexityCorpus",
    "PerplexityWithout",
    "PruneAndComp",
    "Recovery",
    "ReplaceMe",
    "ReplaceMeCosine",
    "Reverse",
    "ShortGpt",
    "ShortGptChannel",
    "Sleb",
    "Strategy",
    "Streamline",
    "StreamlineChannel",
    "Taylor",
    "TextReference",
    "UploadText",
    "is_hub_id",
    "metric_key",
    "parse_indices",
    "resolve_amount",
]
