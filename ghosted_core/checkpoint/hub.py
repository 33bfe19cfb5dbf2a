"""Models and texts from the Hugging Face Hub, through its own client: a commit, checked on both sides."""

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import EntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    get_session,
    hf_raise_for_status,
)

from ghosted_core.checkpoint.guard import (
    INDEX_FILE,
    PICKLE_SUFFIXES,
    SINGLE_FILE,
    check_links,
    check_small_files,
    read_weight_map,
)
from ghosted_core.checkpoint.hub_faults import translated
from ghosted_core.checkpoint.quiet import quiet_hub
from ghosted_core.errors import (
    CorruptModelError,
    DiskFullError,
    HubUnavailableError,
    UnsafeModelError,
)
from ghosted_core.spec import HubModel
from ghosted_core.wheels import Log

COMMIT = re.compile(r"^[0-9a-f]{40}$")
# What is carried besides weights: never code, never pickles.
SMALL_FILE = re.compile(
    r"^(?:[A-Za-z0-9][\w.-]*\.(?:json|txt|jinja|model|tiktoken)|README\.md|(?:LICENSE|LICENCE|NOTICE)[\w.-]*"
    r"|additional_chat_templates/[\w.-]+\.jinja)$",
    re.ASCII,
)
TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Listing:
    """The files of a repository at a commit, with their sizes in bytes."""

    commit: str
    sizes: Mapping[str, int]

    def restricted(self, names: Iterable[str]) -> "Listing":
        """The same commit, with only the named files."""
        return Listing(self.commit, {name: self.sizes[name] for name in names})


@dataclass(frozen=True)
class HubClient:
    """One user's access to one Hub, with the folder its files are kept in.

    `endpoint` None means HF_ENDPOINT, or else the public Hub; HF_HUB_OFFLINE leaves the cache only.
    """

    cache: Path
    token: str | None = field(repr=False)  # It must not reach a log.
    endpoint: str | None = None
    timeout_seconds: float = TIMEOUT_SECONDS

    def listing(self, reference: HubModel) -> Listing:
        """What the repository holds at the commit that the revision names now."""
        # False, not None: None would let the client pick up a token that lies on this machine.
        api = HfApi(endpoint=self.endpoint, token=self.token or False)
        info = api.model_info(
            reference.id, revision=reference.revision, files_metadata=True, timeout=self.timeout_seconds
        )
        if info.sha is None or not COMMIT.fullmatch(info.sha):
            raise HubUnavailableError(f"The Hub named no commit for {reference.id}.")
        if info.gated:
            # Anyone may read the list of a gated repository's files, and the cache, which all users
            # share, would hand them out unasked.
            self._check_access(reference, api)
        sizes = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}
        return Listing(commit=info.sha, sizes=sizes)

    def _check_access(self, reference: HubModel, api: HfApi) -> None:
        # Not `api.auth_check`: that waits for ever on a Hub that says nothing.
        headers = build_hf_headers(token=self.token or False)
        address = f"{api.endpoint}/api/models/{reference.id}/auth-check"
        answer = get_session().get(address, headers=headers, timeout=self.timeout_seconds)
        hf_raise_for_status(answer)

    def download(self, reference: HubModel, commit: str, names: Iterable[str]) -> Path:
        """The snapshot folder, with at least the named files in it."""
        with quiet_hub():
            folder = snapshot_download(
                reference.id,
                revision=commit,
                cache_dir=self.cache,
                token=self.token or False,
                endpoint=self.endpoint,
                allow_patterns=sorted(names),
                max_workers=4,
            )
        return Path(folder)

    def cached(self, reference: HubModel, listing: Listing) -> Path:
        """The snapshot folder that an earlier download of these files left."""
        folder = snapshot_download(
            reference.id,
            revision=listing.commit,
            cache_dir=self.cache,
            allow_patterns=sorted(listing.sizes),
            local_files_only=True,
        )
        return Path(folder)

    def data_listing(self, reference: HubModel, file: str) -> Listing:
        """One file of a data set with its size, at the commit that the revision names now.

        Raises:
            EntryNotFoundError: the commit has no such file.
        """
        api = HfApi(endpoint=self.endpoint, token=self.token or False)
        # Only the commit: the list of all files of a large data set is megabytes.
        info = api.dataset_info(
            reference.id, revision=reference.revision, expand=["sha"], timeout=TIMEOUT_SECONDS
        )
        if info.sha is None or not COMMIT.fullmatch(info.sha):
            raise HubUnavailableError(f"The Hub named no commit for {reference.id}.")
        found = api.get_paths_info(reference.id, [file], revision=info.sha, repo_type="dataset")
        sizes = {path.path: path.size for path in found if isinstance(path, RepoFile)}
        if file not in sizes:
            raise EntryNotFoundError(file)
        return Listing(info.sha, {file: sizes[file]})

    def data_file(self, reference: HubModel, listing: Listing, *, offline: bool) -> Path:
        """Where the one file of the listing lies, fetched unless it is there or must not be."""
        (file,) = listing.sizes
        with quiet_hub():
            path = hf_hub_download(
                reference.id,
                file,
                repo_type="dataset",
                revision=listing.commit,
                cache_dir=self.cache,
                token=self.token or False,
                endpoint=self.endpoint,
                local_files_only=offline,
            )
        return Path(str(path))

    def remember(self, reference: HubModel, listing: Listing, file: str = "") -> None:
        """Offline, the reference, or the one file of that data set, will mean this listing."""
        record = self._record(reference, file)
        record.parent.mkdir(parents=True, exist_ok=True)
        scratch = record.with_name(f"{record.name}.{uuid.uuid4().hex}")
        scratch.write_text(json.dumps({"commit": listing.commit, "sizes": dict(listing.sizes)}))
        scratch.replace(record)

    def recall(self, reference: HubModel, file: str = "") -> Listing:
        """What the reference, or the one file of that data set, meant when it was last fetched.

        Raises:
            HubUnavailableError: it never was.
        """
        record = self._record(reference, file)
        if not record.is_file():
            raise HubUnavailableError(
                f"{reference.id} was never fetched at this revision, and the Hub client is set to offline."
            )
        return Listing(**json.loads(record.read_text()))

    def _record(self, reference: HubModel, file: str) -> Path:
        # A hash, because a revision is a user's text and must not become a path.
        name = f"{reference.id}@{reference.revision or ''}" + (f":{file}" if file else "")
        key = hashlib.sha256(name.encode()).hexdigest()
        return self.cache / "revisions" / f"{key}.json"


def fetch_snapshot(
    reference: HubModel, client: HubClient, *, supported: Iterable[str] | None, log: Log
) -> tuple[Path, str]:
    """The model's files lie complete in the returned folder, which is that of the returned commit.

    Small files come first and are checked, so that a model that will be refused costs no weights.

    Raises:
        ModelNotFoundError, GatedModelError, HubUnavailableError: told apart as far as the Hub does.
        UnsafeModelError, UnsupportedModelError, CorruptModelError: see `guard`.
        DiskFullError: the cache's disk has no room for the weights.
    """
    with translated(reference):
        try:
            listing = client.listing(reference)
        except OfflineModeIsEnabled:
            listing = client.recall(reference)
            folder = client.cached(reference, listing)
        else:
            folder, names = _download(reference, client, listing, supported=supported, log=log)
            listing = listing.restricted(names)
            client.remember(reference, listing)
        verify_sizes(folder, listing)
        return folder, listing.commit


def _download(
    reference: HubModel, client: HubClient, listing: Listing, *, supported: Iterable[str] | None, log: Log
) -> tuple[Path, list[str]]:
    check_names(listing.sizes)
    small = [name for name in listing.sizes if SMALL_FILE.fullmatch(name)]
    folder = client.download(reference, listing.commit, small)
    verify_sizes(folder, listing.restricted(small))
    check_links(folder)
    check_small_files(folder, supported=supported)
    weights = _weight_names(folder, listing)
    check_room(client.cache, sum(listing.sizes[name] for name in weights if not (folder / name).exists()))
    log(f"Fetching {reference.id} at {listing.commit[:12]} ({len(weights)} weight files).")
    client.download(reference, listing.commit, weights)
    return folder, [*small, *weights]


def check_names(names: Iterable[str]) -> None:
    """The repository's list of files is one a model folder can have; checked before any download.

    Raises:
        CorruptModelError: no config.json, or no weights.
        UnsafeModelError: a name that leaves the folder, or pickled weights only.
    """
    listed = set(names)
    for name in listed:
        if "\\" in name or name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise UnsafeModelError(f"The repository lists a file outside its folder: {name[:80]!r}.")
    if "config.json" not in listed:
        raise CorruptModelError("The repository has no config.json: it holds no transformers model.")
    if listed.isdisjoint({SINGLE_FILE, INDEX_FILE}):
        if any(PurePosixPath(name).suffix in PICKLE_SUFFIXES for name in listed):
            raise UnsafeModelError("The repository has its weights only as pickles.")
        raise CorruptModelError(f"The repository has neither {SINGLE_FILE} nor {INDEX_FILE}.")


def _weight_names(folder: Path, listing: Listing) -> list[str]:
    if SINGLE_FILE in listing.sizes:
        return [SINGLE_FILE]
    shards = sorted(set(read_weight_map(folder / INDEX_FILE).values()))
    missing = [shard for shard in shards if shard not in listing.sizes]
    if missing:
        raise CorruptModelError(f"The repository lacks the shard {missing[0]} that its index names.")
    return shards


def check_room(cache: Path, needed_bytes: int) -> None:
    """The disk of the cache has room for so many bytes more.

    Raises:
        DiskFullError: it has not.
    """
    free_bytes = shutil.disk_usage(cache).free
    if free_bytes < needed_bytes:
        raise DiskFullError(f"The download needs {needed_bytes} bytes in the cache; {free_bytes} are free.")


def verify_sizes(folder: Path, listing: Listing) -> None:
    """Every listed file is there with its size.

    Raises:
        CorruptModelError: one is not.
    """
    for name, size_bytes in listing.sizes.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else None
        if found != size_bytes:
            raise CorruptModelError(
                f"{name} has {found} bytes after the download, the Hub lists {size_bytes}."
            )
