"""Text files of data sets on the Hub, through the client that fetches models."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError, OfflineModeIsEnabled

from ghosted_core.catalog import HubFile
from ghosted_core.checkpoint.hub import (
    COMMIT,
    HubClient,
    Listing,
    check_room,
    verify_sizes,
)
from ghosted_core.checkpoint.hub_faults import translated
from ghosted_core.documents import Fetched
from ghosted_core.errors import (
    CorruptModelError,
    DataError,
    DataGatedError,
    DataNotFoundError,
    DataUnavailableError,
    GatedModelError,
    HubUnavailableError,
    ModelNotFoundError,
    SourceError,
)
from ghosted_core.spec import HubModel
from ghosted_core.wheels import Log

# Of the same meaning: what cannot be had is a text here, not a model.
KINDS: dict[type[SourceError], type[DataError]] = {
    ModelNotFoundError: DataNotFoundError,
    GatedModelError: DataGatedError,
    HubUnavailableError: DataUnavailableError,
}


def fetch_text(source: HubFile, client: HubClient, log: Log) -> Fetched:
    """The file lies complete at the returned path, as it was at the returned commit.

    A file of a pinned commit that is in the cache already is used without asking the Hub.

    Raises:
        DataNotFoundError, DataGatedError, DataUnavailableError: told apart as far as the Hub does.
        DataError: the file has another size than the Hub lists, or cannot be kept.
        DiskFullError: the cache's disk has no room for it.
    """
    reference = HubModel(id=source.repository, revision=source.revision)
    with _as_data_errors(), translated(reference), _missing_file(source):
        path = _kept(reference, source, client)
        if path is None:
            path = _fetch_anew(reference, source, client, log)
        return path


def _kept(reference: HubModel, source: HubFile, client: HubClient) -> Fetched | None:
    # A branch may have moved on; a commit cannot.
    if source.revision is None or not COMMIT.fullmatch(source.revision):
        return None
    try:
        listing = client.recall(reference, source.file)
        return _verified(client.data_file(reference, listing, offline=True), listing)
    except (HubUnavailableError, LocalEntryNotFoundError, CorruptModelError):
        return None


def _fetch_anew(reference: HubModel, source: HubFile, client: HubClient, log: Log) -> Fetched:
    try:
        listing = client.data_listing(reference, source.file)
    except OfflineModeIsEnabled:
        listing = client.recall(reference, source.file)
        return _verified(client.data_file(reference, listing, offline=True), listing)
    client.cache.mkdir(parents=True, exist_ok=True)
    check_room(client.cache, listing.sizes[source.file])
    log(f"Fetching {source.file} of {source.repository} at {listing.commit[:12]}.")
    fetched = _verified(client.data_file(reference, listing, offline=False), listing)
    client.remember(reference, listing, source.file)
    return fetched


def _verified(path: Path, listing: Listing) -> Fetched:
    (file,) = listing.sizes
    folder = path.parents[len(Path(file).parts) - 1]
    verify_sizes(folder, listing)
    return Fetched(path, listing.commit)


@contextmanager
def _missing_file(source: HubFile) -> Iterator[None]:
    # A file that is not in the cache is a kind of missing entry to the client, but says less.
    try:
        yield
    except LocalEntryNotFoundError:
        raise
    except EntryNotFoundError as error:
        raise DataNotFoundError(f"The data set {source.repository} has no file {source.file}.") from error


@contextmanager
def _as_data_errors() -> Iterator[None]:
    try:
        yield
    except SourceError as error:
        kind = KINDS.get(type(error))
        if kind is None:
            raise DataError(error.message, advice=error.hint) from error
        raise kind(error.message) from error
