"""What a job names on the Hugging Face Hub, asked for when it is submitted: which commit, and may it be read.

Torch-free, and nothing but lists of files and config.json is fetched.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.errors import OfflineModeIsEnabled
from pydantic import SecretStr

from ghosted_core.catalog import Catalog
from ghosted_core.checkpoint.hub import HubClient, check_names
from ghosted_core.checkpoint.hub_faults import translated
from ghosted_core.errors import GatedModelError, HubUnavailableError, ModelNotFoundError
from ghosted_core.spec import CatalogModel, HubModel, JobSpec
from services.hub import PATIENCE_SECONDS, HubConfig, hub_address, read_config

# A slow Hub must not take all threads and connections of the API.
MOST_AT_ONCE = 4
TIMEOUT_SECONDS = 10.0
ADVICE = "Try again in a few minutes; jobs that are queued already are not concerned."


class HubDesk:
    """Asks the Hub that HF_ENDPOINT names; with `enabled` false, nobody."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)

    def pinned(
        self, spec: JobSpec, token: SecretStr | None = None, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> JobSpec:
        """`spec` with the commit that its model's revision names now; as it is, if it names no Hub model.

        Where the Hub client is set to offline, revisions stay as they are: workers take what they
        have fetched before.

        Raises:
            ModelNotFoundError, GatedModelError, HubUnavailableError: told apart as far as the Hub does.
            UnsafeModelError, CorruptModelError: the list of files is none of a model that can be used.
        """
        if not self._enabled or not isinstance(spec.model, HubModel):
            return spec
        return spec.model_copy(update={"model": self._pinned(spec.model, token, timeout_seconds)})

    def configuration(
        self, model: HubModel | None, token: SecretStr | None = None
    ) -> Mapping[str, Any] | None:
        """The raw config.json of `model`; None where there is none, or it cannot be had now.

        Raises:
            UnsafeModelError, UnsupportedModelError, CorruptModelError: the job could only fail.
        """
        if model is None:
            return None
        try:
            return self.read(model, token).config
        except HubUnavailableError:
            # Pinning has refused what has to be; this much the worker learns for itself.
            return None

    def read(
        self, model: HubModel, token: SecretStr | None, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> HubConfig:
        """The checked config.json of a model that pinning let pass.

        Raises:
            HubUnavailableError: it cannot be had now, or nobody is asked.
            UnsafeModelError, UnsupportedModelError, CorruptModelError: a job could only fail.
        """
        if not self._enabled:
            raise HubUnavailableError("The Hub is not asked here (GHOSTED_RESOLVE_MODELS).")
        try:
            with self._turn():
                return read_config(model, hub_address(), token, patience_seconds)
        except (ModelNotFoundError, GatedModelError) as error:
            raise HubUnavailableError(f"The Hub does not give the config.json of {model.id}.") from error

    def _pinned(self, model: HubModel, token: SecretStr | None, timeout_seconds: float) -> HubModel:
        # The list of files is not kept, so there is no folder to keep it in.
        client = HubClient(
            cache=Path(),
            token=None if token is None else token.get_secret_value(),
            timeout_seconds=timeout_seconds,
        )
        with self._turn(), _with_advice(), translated(model):
            try:
                listing = client.listing(model)
            except OfflineModeIsEnabled:
                return model
        check_names(listing.sizes)
        return model.model_copy(update={"revision": listing.commit})

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._free.acquire(blocking=False):
            raise HubUnavailableError("Too many questions wait for the Hub's answer.", advice=ADVICE)
        try:
            yield
        finally:
            self._free.release()


def hub_model(spec: JobSpec, catalog: Catalog) -> HubModel | None:
    """The Hub model that `spec` names, itself or by an alias of `catalog`; None if it names another."""
    named = catalog.models.get(spec.model.alias) if isinstance(spec.model, CatalogModel) else spec.model
    return named if isinstance(named, HubModel) else None


@contextmanager
def _with_advice() -> Iterator[None]:
    try:
        yield
    except HubUnavailableError as error:
        raise HubUnavailableError(error.message, advice=ADVICE) from error
