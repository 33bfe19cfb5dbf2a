"""What a submission does, before and in its transaction; what a deletion does."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from pydantic import SecretStr

from ghosted_core.catalog import Catalog
from ghosted_core.errors import DataNotFoundError, ModelNotFoundError
from ghosted_core.spec import CatalogModel, CatalogText, JobSpec, LocalModel, LocalText
from services.artifacts.manifest import job_prefix
from services.artifacts.storage import ArtifactStore
from services.config import Settings
from services.db.models import Job
from services.db.sessions import WriteSession
from services.errors import InvalidRequestError, LocalPathRefusedError, UnknownAliasError
from services.jobs import repository
from services.jobs.foresight import foresee
from services.jobs.repository import NewJob
from services.jobs.rows import add_wake_up
from services.jobs.submissions import JobSubmission
from services.jobs.values import storable
from services.jobs.viewer import Viewer
from services.sealing import SecretBox
from services.toolbox import Toolbox
from services.workers.needs import UNKNOWN, catalog_needs, needs_of


def submit(session: WriteSession, new: NewJob) -> Job:
    """A queued job and the wake-up that will start it exist together, or neither does."""
    job = repository.add(session, new)
    add_wake_up(session, job)
    return job


def keep_token(job: Job, token: SecretStr | None, box: SecretBox) -> None:
    """The job's row holds `token`, if there is one, sealed; until the job has ended."""
    if token is not None:
        job.hub_token = box.seal(token, job.id)


def delete(session: WriteSession, job: Job, store: ArtifactStore) -> None:
    """Neither rows nor objects of `job`, which has ended and is locked, are left.

    Raises:
        StorageUnavailableError: the store does not answer; the job is still there.
    """
    # Objects first: a row without objects can be deleted again, objects without a row nobody finds.
    store.abort_uploads(job_prefix(job.id))
    store.delete_prefix(job_prefix(job.id))
    repository.remove(session, job)


def checked(
    submission: JobSubmission, viewer: Viewer, tools: Toolbox, *, retry_of: UUID | None = None
) -> NewJob:
    """What `submission` asks for, if it can be had.

    Raises:
        InvalidRequestError: one of its kinds; see `check_spec` and `deadline_seconds`.
        GhostedError: the model is known here, and what is asked for does not fit it.
    """
    spec = submission.to_spec()
    check_spec(spec, tools.catalog)
    needs = catalog_needs(spec)
    if isinstance(spec.model, CatalogModel):
        # What does not fit a model that is known here need not wait for a worker to say so.
        found = foresee(spec, tools.catalog.configs.get(spec.model.alias, {}))
        needs = needs if found is None or needs != UNKNOWN else needs_of(spec, found.sizes)
    deadline = deadline_seconds(submission.deadline_seconds, tools.settings)
    return NewJob(spec, deadline, viewer.owner_id, submission.labels, retry_of=retry_of, needs=needs)


def check_spec(spec: JobSpec, catalog: Catalog) -> None:
    """Return if a user of the service may ask for this.

    Raises:
        LocalPathRefusedError: it names a path of this machine.
        UnknownAliasError: it names an alias that the catalog does not hold.
        InvalidRequestError: it holds text that cannot be stored.
    """
    for field, reference in _references(spec):
        _check_reference(field, reference, catalog)
    if storable(spec.model_dump(mode="json")) != spec.model_dump(mode="json"):
        raise InvalidRequestError("the request holds a character that cannot be stored (U+0000)")


def deadline_seconds(wanted: int | None, settings: Settings) -> int:
    """How long the job may run.

    Raises:
        InvalidRequestError: longer was asked for than the operator allows.
    """
    if wanted is None:
        return settings.deadline_default_seconds
    if wanted > settings.deadline_max_seconds:
        limit = settings.deadline_max_seconds
        raise InvalidRequestError(f"{wanted} s is more than {limit} s", field="deadline_seconds")
    return wanted


def _references(spec: JobSpec) -> Iterator[tuple[str, Any]]:
    yield "model", spec.model
    yield "calibration.dataset", spec.calibration.dataset
    if spec.evaluation is not None:
        for where, text in spec.evaluation.texts:
            yield f"evaluation.{where}", text
    if spec.finetune is not None and spec.finetune.dataset is not None:
        yield "finetune.dataset", spec.finetune.dataset


def _check_reference(field: str, reference: Any, catalog: Catalog) -> None:
    if isinstance(reference, LocalModel | LocalText):
        raise LocalPathRefusedError("paths of the server's machine are not accepted", field=field)
    if isinstance(reference, CatalogModel):
        _look_up(field, catalog.model, reference.alias)
    if isinstance(reference, CatalogText):
        _look_up(field, catalog.text, reference.alias)


def _look_up(field: str, find: Callable[[str], object], alias: str) -> None:
    try:
        find(alias)
    except (ModelNotFoundError, DataNotFoundError) as error:
        raise UnknownAliasError(error.message, field=field, advice=error.hint) from error
