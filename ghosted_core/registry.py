"""What an operator adds to the catalog: a file of aliases. Free of torch.

A user names an alias and nothing else. Where it leads (a repository at a commit, a folder of the
workers, a wheel) stands in this file alone, and no alias is ever a part of a path.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, ValidationError, model_validator

from ghosted_core.catalog import Catalog, HubFile, ModelEntry, TextEntry, WheelMember, builtin_catalog
from ghosted_core.checkpoint.guard import check_small_files
from ghosted_core.errors import GhostedError, InvalidCatalogError
from ghosted_core.spec import Frozen, HubModel, LocalModel, LocalText
from ghosted_core.spec.references import HUB_ID, Alias

MAX_BYTES = 1 << 20

HubId = Annotated[str, StringConstraints(pattern=HUB_ID)]
# A branch or tag may move: what an alias stands for does not.
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def _absolute(path: str) -> str:
    if not path.startswith("/") or ".." in PurePosixPath(path).parts or not path.isprintable():
        raise ValueError("a path from the root, without '..', is needed")
    return path


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not path.isprintable() or path.startswith("/") or ".." in parts or "/".join(parts) != path:
        raise ValueError("a plain path inside the repository or wheel is needed")
    return path


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
InnerPath = Annotated[str, StringConstraints(min_length=1), AfterValidator(_inside)]


class Wheel(Frozen):
    """A file inside a Python package: `sha256` is that of the whole wheel."""

    package: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    version: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!]*$")]
    sha256: Sha256
    member: InnerPath

    @property
    def entry(self) -> WheelMember:
        """As the catalog has it."""
        return WheelMember(self.package, self.version, self.sha256, self.member)


class RegisteredModel(Frozen):
    """A Hub repository at a commit, a folder or .gguf file of every worker, or one inside a wheel."""

    title: Annotated[str, StringConstraints(max_length=200)] = ""
    hub: HubId | None = None
    commit: Commit | None = None
    path: AbsolutePath | None = None
    wheel: Wheel | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        _one_of(self, "hub", "path", "wheel")
        _together(self, "hub", "commit")
        return self

    @property
    def entry(self) -> ModelEntry:
        """As the catalog has it."""
        if self.wheel is not None:
            return self.wheel.entry
        if self.path is not None:
            return LocalModel(path=self.path)
        return HubModel(id=self.hub or "", revision=self.commit)


class RegisteredText(Frozen):
    """A file of rows: of a Hub data set at a commit, of every worker, or inside a wheel (Arrow)."""

    title: Annotated[str, StringConstraints(max_length=200)] = ""
    hub: HubId | None = None
    commit: Commit | None = None
    file: InnerPath | None = None
    path: AbsolutePath | None = None
    wheel: Wheel | None = None
    column: Annotated[str, StringConstraints(min_length=1, max_length=200)] = "text"
    joining: Literal["rows", "articles"] = "rows"

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        _one_of(self, "hub", "path", "wheel")
        _together(self, "hub", "commit", "file")
        if self.path is not None and (self.column, self.joining) != ("text", "rows"):
            raise ValueError("a file of the workers has its text under 'text', a document a row")
        return self

    @property
    def entry(self) -> TextEntry:
        """As the catalog has it."""
        return TextEntry(self._source(), self.column, self.joining)

    def _source(self) -> WheelMember | HubFile | LocalText:
        if self.wheel is not None:
            return self.wheel.entry
        if self.path is not None:
            return LocalText(path=self.path)
        return HubFile(self.hub or "", self.file or "", self.commit)


class Registry(Frozen):
    """An operator's aliases, beside the built-in ones."""

    models: dict[Alias, RegisteredModel] = Field(default={}, max_length=1000)
    datasets: dict[Alias, RegisteredText] = Field(default={}, max_length=1000)

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        own = builtin_catalog()
        taken = sorted({*self.models} & {*own.models} | {*self.datasets} & {*own.texts})
        if taken:
            raise ValueError(f"these aliases are built in: {', '.join(taken)}")
        return self

    def catalog(self) -> Catalog:
        """The built-in catalog and these.

        Of models whose folder is on this machine too, it holds the configuration.
        """
        own = builtin_catalog()
        models = {alias: model.entry for alias, model in self.models.items()}
        texts = {alias: text.entry for alias, text in self.datasets.items()}
        titles = {alias: model.title for alias, model in self.models.items()}
        titles |= {alias: text.title for alias, text in self.datasets.items()}
        return Catalog(
            models={**own.models, **models},
            texts={**own.texts, **texts},
            configs={**own.configs, **_configs(models)},
            titles={alias: title for alias, title in titles.items() if title},
        )


NOTHING = Registry()


def _one_of(entry: Frozen, *names: str) -> None:
    if sum(getattr(entry, name) is not None for name in names) != 1:
        raise ValueError(f"exactly one of {', '.join(names)} is needed")


def _together(entry: Frozen, first: str, *others: str) -> None:
    for name in others:
        if (getattr(entry, first) is None) != (getattr(entry, name) is None):
            raise ValueError(f"'{first}' and '{name}' go together")


def read_registry(path: Path | None) -> Registry:
    """The aliases in the TOML file `path`; none without a path.

    Raises:
        InvalidCatalogError: it cannot be read, or holds something else; the message says what and where.
    """
    if path is None:
        return NOTHING
    try:
        content = path.read_bytes()
        if len(content) > MAX_BYTES:
            raise InvalidCatalogError(f"The catalog {path} is longer than {MAX_BYTES} bytes.")
        return Registry.model_validate(tomllib.loads(content.decode()))
    except OSError as error:
        raise InvalidCatalogError(f"The catalog {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidCatalogError(f"The catalog {path} is not TOML: {error}.") from error
    except ValidationError as error:
        flaws = "; ".join(_flaw(one["loc"], one["msg"]) for one in error.errors(include_url=False))
        raise InvalidCatalogError(f"The catalog {path} holds what it must not: {flaws}.") from error


def _flaw(place: tuple[int | str, ...], message: str) -> str:
    where = ".".join(str(part) for part in place if part != "[key]")
    return f"{where}: {message}" if where else message


def _configs(models: Mapping[str, ModelEntry]) -> dict[str, Mapping[str, Any]]:
    """The configurations of the folders that are on this machine; others are known to the workers only."""
    found: dict[str, Mapping[str, Any]] = {}
    for alias, entry in models.items():
        if isinstance(entry, LocalModel) and Path(entry.path, "config.json").is_file():
            try:
                found[alias] = check_small_files(Path(entry.path))
            except GhostedError:
                continue  # A job that names it is refused by the worker, with the reason.
    return found
