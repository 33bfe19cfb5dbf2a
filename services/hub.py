"""Reads a model's config.json from the Hub, and nothing else: the API never fetches weights."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from pydantic import SecretStr

from ghosted_core.checkpoint.guard import check_small_files
from ghosted_core.checkpoint.strict_json import MAX_CONFIG_BYTES
from ghosted_core.errors import (
    GatedModelError,
    HubUnavailableError,
    ModelNotFoundError,
    UnsafeModelError,
)
from ghosted_core.spec import HubModel

PUBLIC_HUB = "https://huggingface.co"
# A user waits for the answer: no step begins later than this, and each may take half of what is left.
PATIENCE_SECONDS = 1.2
OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 200, 401, 403, 404


@dataclass(frozen=True)
class HubConfig:
    """A checked config.json, and the commit that it is from where the Hub says so."""

    config: Mapping[str, Any]
    commit: str | None


def hub_address() -> str | None:
    """Where the Hub is, by the variables of its own client; None if it is not to be asked."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return None
    return os.environ.get("HF_ENDPOINT") or PUBLIC_HUB


def read_config(
    reference: HubModel,
    address: str | None,
    token: SecretStr | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> HubConfig:
    """The configuration of a model on the Hub at `address`, after at most 1.5 times `patience_seconds`.

    Redirects and a content that comes drop by drop are within that. `token` is the user's; it goes to
    the Hub and, on a redirect, to nobody else.

    Raises:
        ModelNotFoundError: the Hub has no such model, or shows it to nobody without a token.
        GatedModelError: its owner grants access one by one.
        HubUnavailableError: the Hub does not answer in time, or is not to be asked.
        UnsafeModelError, UnsupportedModelError, CorruptModelError: see `guard.check_small_files`.
    """
    if address is None:
        raise HubUnavailableError("The Hub is not asked here (HF_HUB_OFFLINE).")
    # Id and revision match their patterns: neither can lead anywhere else.
    url = f"{address.rstrip('/')}/{reference.id}/resolve/{reference.revision or 'main'}/config.json"
    try:
        content, commit = _fetch(url, reference, token, patience_seconds)
    except httpx2.HTTPError as error:
        raise HubUnavailableError(f"The Hub could not be reached for {reference.id}.") from error
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_bytes(content)
        return HubConfig(check_small_files(Path(folder)), commit)


def _fetch(
    url: str, reference: HubModel, token: SecretStr | None, patience_seconds: float
) -> tuple[bytes, str | None]:
    # httpx2 drops it where a redirect leaves the host.
    headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
    deadline = time.monotonic() + patience_seconds
    hooks = {"request": [lambda request: _limit(request, reference, deadline)]}
    with (
        httpx2.Client(follow_redirects=True, max_redirects=3, event_hooks=hooks) as http,
        http.stream("GET", url, headers=headers) as response,
    ):
        _check_status(response, reference)
        content = bytearray()
        # Without a size: pieces of one would come only when they are full.
        for piece in response.iter_bytes():
            content += piece
            if len(content) > MAX_CONFIG_BYTES:
                raise UnsafeModelError(f"config.json is larger than {MAX_CONFIG_BYTES} bytes.")
            _left(reference, deadline)
        return bytes(content), response.headers.get("x-repo-commit")


def _limit(request: httpx2.Request, reference: HubModel, deadline: float) -> None:
    # Each hop comes here: connecting and the first answer have what is left between them.
    request.extensions["timeout"] = httpx2.Timeout(_left(reference, deadline) / 2).as_dict()


def _left(reference: HubModel, deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise HubUnavailableError(f"The Hub takes too long for {reference.id}.")
    return left


def _check_status(response: httpx2.Response, reference: HubModel) -> None:
    gated = response.headers.get("x-error-code") == "GatedRepo"
    if gated or response.status_code == FORBIDDEN:
        raise GatedModelError(f"{reference.id} is gated, and the service reads it without a token.")
    if response.status_code in {UNAUTHORIZED, NOT_FOUND}:
        raise ModelNotFoundError(f"The Hub has no {reference.id}, or shows it only to some.")
    if response.status_code != OK:
        raise HubUnavailableError(f"The Hub answered {response.status_code} for {reference.id}.")
