import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from ghosted_core.catalog import Catalog, HubFile, TextEntry, builtin_catalog
from ghosted_core.checkpoint.hub import HubClient
from ghosted_core.checkpoint.hub_text import fetch_text
from ghosted_core.data import token_windows
from ghosted_core.documents import Documents, read_documents
from ghosted_core.errors import (
    DataError,
    DataGatedError,
    DataNotFoundError,
    DataUnavailableError,
    GhostedError,
)
from ghosted_core.spec import CatalogText
from tests.hub_double import Hub, Repository, running_hub
from tests.tokenizers_made_here import byte_tokenizer

FILE = "en/train.00000-of-00001.json.gz"
COMMIT = "b" * 40
TEXTS = [f"document {number} of a made-up corpus" for number in range(40)]
LINES = gzip.compress("".join(json.dumps({"text": text, "url": "x"}) + "\n" for text in TEXTS).encode())
WIKI = [
    "",
    " = First = \n",
    "",
    " One . \n",
    " = 1 and x = \n",
    "",
    " = = Part = = \n",
    "",
    " Two . \n",
    "",
    "",
]
WIKI += [" = Second = \n", "", " Three . \n"]


def table(rows: list[str]) -> bytes:
    """A parquet file with the rows in its column `text`."""
    sink = io.BytesIO()
    parquet.write_table(pa.table({"text": rows}), sink)
    return sink.getvalue()


def corpus(**changes: object) -> Repository:
    """A data set of one file."""
    return Repository({FILE: LINES, "README.md": b"", "script.py": b"raise"}, commit=COMMIT, **changes)  # type: ignore[arg-type]


def read(hub: Hub, cache: Path, source: HubFile, **settings: object) -> Documents:
    """The documents of the file through the double, by the real client."""
    client = HubClient(cache=cache, token=None, endpoint=hub.endpoint)
    entry = TextEntry(source, "text", **settings)  # type: ignore[arg-type]
    return read_documents(
        CatalogText(alias="corpus"),
        catalog=Catalog(models={}, texts={"corpus": entry}),
        cache=cache,
        log=lambda _: None,
        fetch_hub=lambda wanted: fetch_text(wanted, client, lambda _: None),
    )


def test_a_file_of_a_data_set_is_read_at_its_commit(tmp_path: Path) -> None:
    """Only the named file is fetched, by commit, without a token; its rows are the documents."""
    with running_hub({}, {"owner/corpus": corpus()}) as hub:
        documents = read(hub, tmp_path, HubFile("owner/corpus", FILE))
    assert list(documents) == TEXTS
    assert set(hub.downloads()) == {FILE}
    assert all(f"/resolve/{COMMIT}/" in path for _, path, _ in hub.requests if "/resolve/" in path)
    assert {authorization for _, _, authorization in hub.requests} == {None}


def test_the_windows_say_which_file_they_are_of(tmp_path: Path) -> None:
    """Repository, commit and file are in the description that the manifest keeps."""
    with running_hub({}, {"owner/corpus": corpus()}) as hub:
        documents = read(hub, tmp_path, HubFile("owner/corpus", FILE))
    windows = token_windows(
        documents, byte_tokenizer(), length=16, count=2, seed=0, part="all", vocab_size=300
    )
    expected = {"repository": "owner/corpus", "commit": COMMIT, "file": FILE, "dataset": "corpus"}
    assert expected.items() <= windows.description.items()


def test_rows_of_articles_are_joined_by_blank_lines(tmp_path: Path) -> None:
    """An article goes from heading to heading, empty rows included; a formula is no heading."""
    repository = Repository({"test.parquet": table(WIKI)}, commit=COMMIT)
    with running_hub({}, {"owner/wiki": repository}) as hub:
        documents = list(read(hub, tmp_path, HubFile("owner/wiki", "test.parquet"), joining="articles"))
    joined = "\n\n".join(WIKI)
    start = joined.index("= Second =")
    assert documents == [joined[:start].strip(), joined[start:].strip()]


def test_a_pinned_file_is_asked_for_once(tmp_path: Path) -> None:
    """What lies in the cache at a pinned commit needs no Hub; without a pin the Hub is asked again."""
    data_sets = {"owner/corpus": corpus()}
    with running_hub({}, data_sets) as hub:
        for source in (HubFile("owner/corpus", FILE, COMMIT), HubFile("owner/corpus", FILE)):
            read(hub, tmp_path, source)
            before = len(hub.requests)
            read(hub, tmp_path, source)
            assert (len(hub.requests) == before) == (source.revision is not None)


def test_a_damaged_file_in_the_cache_is_not_used(tmp_path: Path) -> None:
    """A file cut short on this disk is refused; it never passes for the data set."""
    with running_hub({}, {"owner/corpus": corpus()}) as hub:
        source = HubFile("owner/corpus", FILE, COMMIT)
        path = fetch_text(
            source, HubClient(cache=tmp_path, token=None, endpoint=hub.endpoint), lambda _: None
        ).path
        path.resolve().write_bytes(LINES[:-9])
        with pytest.raises(DataError, match="bytes"):
            read(hub, tmp_path, source)


@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        (corpus(refusal=(403, "GatedRepo")), DataGatedError),
        (corpus(gated_files=True), DataGatedError),
        (corpus(refusal=(404, "RepoNotFound")), DataNotFoundError),
        (corpus(refusal=(401, "RepoNotFound")), DataNotFoundError),
        (corpus(revisions=()), DataNotFoundError),
        (Repository({"README.md": b""}), DataNotFoundError),
        (corpus(refusal=(503, None)), DataUnavailableError),
        (corpus(broken_files=frozenset({FILE})), DataUnavailableError),
        (corpus(listed_sizes={FILE: 7}), DataError),
    ],
)
def test_each_refusal_has_its_error(
    tmp_path: Path, repository: Repository, expected: type[GhostedError]
) -> None:
    """Gated, missing, unavailable and incomplete are told apart; only an outage is worth a retry."""
    with running_hub({}, {"owner/corpus": repository}) as hub, pytest.raises(expected) as caught:
        read(hub, tmp_path, HubFile("owner/corpus", FILE))
    assert type(caught.value) is expected
    assert caught.value.retryable == (expected is DataUnavailableError)


def test_a_model_of_the_same_name_is_no_data_set(tmp_path: Path) -> None:
    """Data sets are looked for among the data sets."""
    with running_hub({"owner/corpus": corpus()}) as hub, pytest.raises(DataNotFoundError):
        read(hub, tmp_path, HubFile("owner/corpus", FILE))


def test_the_builtin_data_sets_are_pinned_files() -> None:
    """Every entry on the Hub names a commit and a file of rows, never a script."""
    sources = [entry.source for entry in builtin_catalog().texts.values()]
    hub_files = [source for source in sources if isinstance(source, HubFile)]
    assert len(hub_files) == 4
    assert all(len(source.revision or "") == 40 for source in hub_files)
    assert all(source.file.endswith((".json.gz", ".parquet")) for source in hub_files)


SCRIPT = """
import sys
from pathlib import Path
from ghosted_core.catalog import Catalog, HubFile, TextEntry
from ghosted_core.documents import read_documents
from ghosted_core.errors import GhostedError
from ghosted_core.spec import CatalogText
from ghosted_core.texts import hub
cache, file = Path(sys.argv[1]), HubFile("owner/corpus", sys.argv[2])
catalog = Catalog({}, {"corpus": TextEntry(file, "text")})
try:
    found = read_documents(CatalogText(alias="corpus"), catalog=catalog, cache=cache, log=print,
                           fetch_hub=hub(cache, lambda _: None))
    print(sum(1 for _ in found), end="")
except GhostedError as error:
    print(error.code, end="")
"""


def in_fresh_process(cache: Path, **environment: str) -> str:
    """What the script prints in a process whose environment says where the Hub is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(cache), FILE],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert finished.stderr == ""
    return finished.stdout


def test_models_are_compared_on_a_text_of_the_hub(tmp_path: Path, tiny_folder: Path) -> None:
    """As `evaluate` and `compress` do, `compare` fetches what an alias names."""
    catalog = tmp_path / "catalog.toml"
    catalog.write_text(f'[datasets.made-up]\nhub = "owner/corpus"\ncommit = "{COMMIT}"\nfile = "{FILE}"\n')
    asked = ("--evaluation", "made-up", "--windows", "2", "--sequence-length", "32", "--no-memory", "--json")
    speed = ("--prompt-tokens", "4", "--new-tokens", "1", "--rounds", "1", "--cache", str(tmp_path / "cache"))
    with running_hub({}, {"owner/corpus": corpus()}) as hub:
        finished = subprocess.run(
            [sys.executable, "-m", "ghosted_cli", "compare", tiny_folder, tiny_folder, *asked, *speed],
            env={**os.environ, "HF_ENDPOINT": hub.endpoint, "GHOSTED_CATALOG": str(catalog)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert finished.returncode == 0, finished.stdout
    assert json.loads(finished.stdout)["text"]["repository"] == "owner/corpus"


def test_offline_uses_the_cache(tmp_path: Path) -> None:
    """With HF_HUB_OFFLINE a fetched data set is found, another is unavailable, and nobody is asked."""
    with running_hub({}, {"owner/corpus": corpus()}) as hub:
        online = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_not_to_be_seen"}
        assert in_fresh_process(tmp_path, **online) == str(len(TEXTS))
        asked = len(hub.requests)
        offline = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_OFFLINE": "1"}
        assert in_fresh_process(tmp_path, **offline) == str(len(TEXTS))
        assert in_fresh_process(tmp_path / "empty", **offline) == "data_unavailable"
    assert len(hub.requests) == asked
    assert {authorization for _, _, authorization in hub.requests} == {None}
