"""What decides the result of a job, as frozen values without torch.

The same `JobSpec` is the body of an API request, the file of a command line and the record in a
checkpoint's manifest. Whatever does not change the result (device, folders, batch size, tokens)
is not in it.
"""

from ghosted_core.spec.base import (
    Frozen,
)
from ghosted_core.spec.job import (
    DEFAULT_TEXT,
    Calibration,
    Evaluation,
    JobSpec,
)
from ghosted_core.spec.recoveries import (
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
    is_hub_id,
)
from ghosted_core.spec.strategies import (
    STRATEGIES,
    Explicit,
    Strategy,
    Streamline,
)

__all__ = [
    "ALIAS",
    "DEFAULT_TEXT",
    "HUB_ID",
    "RECOVERIES",
    "REVISION",
    "STRATEGIES",
    "Alias",
    "Calibration",
    "CatalogModel",
    "CatalogText",
    "Evaluation",
    "Explicit",
    "Frozen",
    "Ghosted",
    "HubModel",
    "JobSpec",
    "LinearPatchDiag",
    "LinearPatchRotate",
    "LocalModel",
    "LocalText",
    "ModelReference",
    "NoRecovery",
    "PruneAndComp",
    "Recovery",
    "ReplaceMe",
    "ReplaceMeCosine",
    "Strategy",
    "Streamline",
    "TextReference",
    "is_hub_id",
]
