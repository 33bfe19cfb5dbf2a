"""/v1/models and /v1/datasets: what jobs may name by an alias."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ghosted_core.catalog import Catalog, HubFile
from ghosted_core.errors import InvalidSpecError
from ghosted_core.sizes import config_sizes
from ghosted_core.spec import HubModel, LocalModel, LocalText
from ghosted_core.wheels import WheelMember
from services.dependencies import CurrentViewer, Tools

router = APIRouter(prefix="/v1", tags=["methods"])


class Listed(BaseModel):
    """An answer."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())


class OriginRead(Listed):
    """Where something comes from. Which folder of the workers a local one is, is not said."""

    kind: Literal["hub", "package", "local"]
    name: str | None = Field(default=None, description="The repository or package.")
    version: str | None = Field(
        default=None, description="The commit or version; null is the newest when it is fetched."
    )
    file: str | None = Field(default=None, description="The file inside it.")


class ModelRead(Listed):
    """A model that a submission may name; its sizes, where they are known without fetching it."""

    alias: str
    title: str | None
    origin: OriginRead
    model_type: str | None
    layer_count: int | None
    parameters: int | None


class ModelList(Listed):
    """All there are, by alias."""

    items: list[ModelRead]


class DatasetRead(Listed):
    """A text that a submission may name, to calibrate or evaluate on."""

    alias: str
    title: str | None
    origin: OriginRead


class DatasetList(Listed):
    """All there are, by alias."""

    items: list[DatasetRead]


@router.get("/models")
def list_models(_: CurrentViewer, tools: Tools) -> ModelList:
    """The models that have an alias here; every other one is named as on the Hub."""
    return ModelList(items=[_model(alias, tools.catalog) for alias in sorted(tools.catalog.models)])


@router.get("/datasets")
def list_datasets(_: CurrentViewer, tools: Tools) -> DatasetList:
    """The texts that have an alias here; every other one is uploaded."""
    found = sorted(tools.catalog.texts.items())
    return DatasetList(
        items=[
            DatasetRead(alias=alias, title=tools.catalog.titles.get(alias), origin=_origin(entry.source))
            for alias, entry in found
        ]
    )


def _model(alias: str, catalog: Catalog) -> ModelRead:
    try:
        sizes = config_sizes(catalog.configs.get(alias, {}))
    except InvalidSpecError:
        sizes = None
    return ModelRead(
        alias=alias,
        title=catalog.titles.get(alias),
        origin=_origin(catalog.models[alias]),
        model_type=None if sizes is None else sizes.model_type,
        layer_count=None if sizes is None else sizes.layer_count,
        parameters=None if sizes is None else sizes.parameters,
    )


def _origin(source: WheelMember | HubModel | HubFile | LocalModel | LocalText) -> OriginRead:
    if isinstance(source, WheelMember):
        return OriginRead(kind="package", name=source.package, version=source.version, file=source.member)
    if isinstance(source, HubFile):
        return OriginRead(kind="hub", name=source.repository, version=source.revision, file=source.file)
    if isinstance(source, HubModel):
        return OriginRead(kind="hub", name=source.id, version=source.revision)
    return OriginRead(kind="local")
