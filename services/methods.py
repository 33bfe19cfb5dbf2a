"""/v1/strategies and /v1/recoveries: what there is to choose from, told by the classes themselves."""

import inspect
from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from ghosted_core.spec import RECOVERIES, STRATEGIES, Frozen
from services.dependencies import count_by_address

router = APIRouter(prefix="/v1", tags=["methods"], dependencies=[Depends(count_by_address)])


class MethodRead(BaseModel):
    """A strategy or a recovery."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    name: str
    title: str
    paper: str | None
    description: str
    json_schema: dict[str, Any] = Field(description="JSON schema of its settings, with their defaults.")


class MethodList(BaseModel):
    """All there are."""

    model_config = ConfigDict(frozen=True)

    items: list[MethodRead]


@router.get("/strategies")
def list_strategies() -> MethodList:
    """How the layers to remove can be chosen."""
    return MethodList(items=[_show(kind, kind.title, kind.paper) for kind in STRATEGIES])


@router.get("/recoveries")
def list_recoveries() -> MethodList:
    """How the cut can be repaired."""
    return MethodList(items=[_show(kind, kind.title, kind.paper) for kind in RECOVERIES])


def _show(kind: type[Frozen], title: str, paper: str | None) -> MethodRead:
    return MethodRead(
        name=kind.model_fields["name"].default,
        title=title,
        paper=paper,
        description=inspect.getdoc(kind) or "",
        json_schema=kind.model_json_schema(),
    )
