"""What the Hub and its client say no with, as errors of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

# `HTTPError` is the base of all transport errors; the HTTP library it is from varies with the version.
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from ghosted_core.errors import GatedModelError, HubUnavailableError, ModelNotFoundError
from ghosted_core.spec import HubModel
from ghosted_core.wheels import disk_fault

SERVER_FAULT = 500
TOO_MANY_REQUESTS = 429
REQUEST_TIMEOUT = 408


@contextmanager
def translated(reference: HubModel) -> Iterator[None]:
    """What the client raises inside is raised as one of our errors, told apart as far as the Hub does.

    Raises:
        ModelNotFoundError, GatedModelError, HubUnavailableError, DiskFullError, SourceError: see there.
    """
    # The client's own messages hold addresses and foreign text, so none of it is passed on.
    name = reference.id if reference.revision is None else f"{reference.id}@{reference.revision}"
    try:
        yield
    except GatedRepoError as error:
        raise GatedModelError(f"{name} is gated, and this access may not read it.") from error
    except (RepositoryNotFoundError, RevisionNotFoundError, DisabledRepoError, HFValidationError) as error:
        raise ModelNotFoundError(f"The Hub has no {name}, or none that this access may read.") from error
    except HfHubHTTPError as error:
        raise _from_status(name, error.response.status_code) from error
    except LocalEntryNotFoundError as error:
        raise HubUnavailableError(f"{name} is not in the cache, and the Hub cannot be reached.") from error
    except (HTTPError, ConnectionError, TimeoutError) as error:
        raise HubUnavailableError(f"The Hub could not be reached for {name}.") from error
    except OSError as error:
        raise disk_fault(error, f"Keeping {name} in the cache") from error


def _from_status(name: str, status: int) -> Exception:
    if status >= SERVER_FAULT or status in {TOO_MANY_REQUESTS, REQUEST_TIMEOUT}:
        return HubUnavailableError(f"The Hub answered {status} for {name}.")
    return ModelNotFoundError(f"The Hub answered {status} for {name}.")
