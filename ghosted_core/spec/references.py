"""Names of models and texts, never their content."""

import re
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field, StringConstraints

from ghosted_core.spec.base import Frozen

HUB_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$"
ALIAS = r"^[a-z0-9][a-z0-9._-]{0,95}$"
REVISION = r"^[A-Za-z0-9][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*$"

# As users write them: owner/name, owner/name@revision or an alias.
MODEL_TEXT = f"(?:{HUB_ID[:-1]}(?:@{REVISION[1:-1]})?$|{ALIAS})"
ModelText = Annotated[str, Field(pattern=MODEL_TEXT)]

Alias = Annotated[str, StringConstraints(pattern=ALIAS)]


class HubModel(Frozen):
    """A repository on the Hugging Face Hub at a revision (a commit, branch or tag)."""

    kind: Literal["hub"] = "hub"
    id: Annotated[str, StringConstraints(pattern=HUB_ID)]
    revision: Annotated[str, StringConstraints(pattern=REVISION, max_length=128)] | None = None


class CatalogModel(Frozen):
    """A model that this installation knows by an alias."""

    kind: Literal["catalog"] = "catalog"
    alias: Alias


class LocalModel(Frozen):
    """A folder or GGUF file on this machine; only the library and the command line make these."""

    kind: Literal["local"] = "local"
    path: str


def _read_model(value: Any) -> Any:
    """Text names a Hub model `owner/name[@revision]` or an alias, never a path."""
    if not isinstance(value, str):
        return value
    if "/" not in value:
        return {"kind": "catalog", "alias": value}
    identifier, _, revision = value.partition("@")
    return {"kind": "hub", "id": identifier, "revision": revision or None}


ModelReference = Annotated[
    Annotated[HubModel | CatalogModel | LocalModel, Field(discriminator="kind")],
    BeforeValidator(_read_model, json_schema_input_type=ModelText | HubModel | CatalogModel | LocalModel),
]


class UploadShort(Frozen):
    """The short form of an upload; reading turns it into an `UploadText`."""

    upload: UUID


class CatalogText(Frozen):
    """A text corpus that this installation knows by an alias."""

    kind: Literal["catalog"] = "catalog"
    alias: Alias


class LocalText(Frozen):
    """A .txt, .jsonl, .jsonl.gz or .parquet file on this machine; never from the service's users."""

    kind: Literal["local"] = "local"
    path: str


class UploadText(Frozen):
    """A text that the user has uploaded to the service, also written `{"upload": ID}`.

    The service fills in `sha256` when the job is submitted: the spec then names one content for good.
    """

    kind: Literal["upload"] = "upload"
    id: UUID
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None


def _read_text(value: Any) -> Any:
    if isinstance(value, str):
        return {"kind": "catalog", "alias": value}
    if isinstance(value, dict) and value.keys() == {"upload"}:
        return {"kind": "upload", "id": value["upload"]}
    return value


TextReference = Annotated[
    Annotated[CatalogText | LocalText | UploadText, Field(discriminator="kind")],
    BeforeValidator(
        _read_text, json_schema_input_type=Alias | UploadShort | CatalogText | LocalText | UploadText
    ),
]


def is_hub_id(text: str) -> bool:
    """Whether `text` has the form owner/name of a Hub repository."""
    return re.fullmatch(HUB_ID, text) is not None
