"""/submit: a form for a job, checked by the API's own code, that says what would come of it."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import SecretStr, ValidationError

from ghosted_core.errors import GhostedError
from ghosted_core.spec import NAMED_CORPORA, RECOVERIES, STRATEGIES, Bound, JobSpec
from services.auth.scopes import Scope
from services.dashboard.fields import About, Field, about
from services.dashboard.forms import ChangingUser, Form, SentForm, read_form
from services.dashboard.page_routes import page_router
from services.dashboard.rendering import render, twin
from services.dashboard.submission import (
    DEFAULTS,
    METHODS,
    SECTIONS,
    Flaw,
    Values,
    field_of,
    settings_of,
    submission_of,
    values_of,
)
from services.dashboard.user import CurrentUser, User
from services.dependencies import HUB_TOKEN, Tools
from services.errors import IdempotencyBusyError, InvalidRequestError, UnauthenticatedError
from services.jobs import repository, validation
from services.jobs.changes import Desk
from services.jobs.submissions import JobSubmission
from services.jobs.validation import ValidationRead
from services.problems import problem_of
from services.toolbox import Toolbox

# A second click waits so long for the answer to the first.
BUSY_SECONDS = 10.0
BUSY_PAUSE_SECONDS = 0.1
# What never goes back into a page.
UNSHOWN = frozenset({"csrf_token", "hub_token", "action"})
FREE = (
    "model",
    "strategy",
    "layers",
    "recovery",
    "dtype",
    "deadline_seconds",
    "labels",
    "advanced",
    "hub_token",
    "calibration.dataset",
    "evaluation",
    "evaluation.dataset",
    "evaluation.gate",
    "evaluation.latency",
    "evaluation.prompts",
    "evaluation.tasks",
    "finetune",
    "finetune.dataset",
)
router = page_router()


@dataclass(frozen=True)
class Method:
    """A strategy or a recovery to choose."""

    name: str
    title: str
    about: About
    chosen: bool


@dataclass(frozen=True)
class SubmitPage:
    """The form as it is filled in, what is wrong in it, and what would come of it."""

    values: Mapping[str, str]
    strategies: Sequence[Method]
    recoveries: Sequence[Method]
    settings: Mapping[str, Sequence[Field]]
    about: Mapping[str, About]
    models: Sequence[str]
    texts: Sequence[str]
    corpora: Sequence[str]
    dtypes: Sequence[str]
    takes_tokens: bool
    idempotency_key: str
    retry_of: UUID | None
    flaws: Mapping[str, str] = field(default_factory=dict)
    foreseen: ValidationRead | None = None


@dataclass(frozen=True)
class Checked:
    """What the form asks for, if it can be had; else what is wrong."""

    submission: JobSubmission | None = None
    foreseen: ValidationRead | None = None
    flaws: Sequence[Flaw] = ()


def _page(tools: Toolbox, values: Values, checked: Checked, retry_of: UUID | None, key: str) -> SubmitPage:
    shown = {**DEFAULTS, **{name: text for name, text in values.items() if name not in UNSHOWN}}
    flaws: dict[str, str] = {}
    for flaw in checked.flaws:
        flaws.setdefault(flaw.field, flaw.detail)
    return SubmitPage(
        values=shown,
        strategies=_methods(STRATEGIES, shown["strategy"]),
        recoveries=_methods(RECOVERIES, shown["recovery"]),
        settings={part: settings_of(part, shown) for part in (*METHODS, *SECTIONS)},
        about={**{part: about(kind) for part, kind in SECTIONS.items()}, "evaluation.gate": about(Bound)},
        models=sorted(tools.catalog.models),
        texts=sorted(tools.catalog.texts),
        corpora=NAMED_CORPORA,
        dtypes=JobSpec.model_json_schema()["properties"]["dtype"]["enum"],
        takes_tokens=tools.settings.secret_key is not None,
        idempotency_key=key,
        retry_of=retry_of,
        flaws=flaws,
        foreseen=checked.foreseen,
    )


def _methods(kinds: Sequence[Any], chosen: str) -> list[Method]:
    names = [kind.model_fields["name"].default for kind in kinds]
    return [
        Method(name, kind.title, about(kind), name == chosen) for name, kind in zip(names, kinds, strict=True)
    ]


def submit_page(request: Request, user: CurrentUser, tools: Tools) -> SubmitPage:
    """The form as the address fills it in: fields by name, or `from` a job."""
    user.caller.require(Scope.SUBMIT)
    form = read_form(request.url.query)
    retry_of = _job_id(form)
    values = {name: form.text(name) for name in form.fields}
    if retry_of is not None:
        with tools.database.read() as session:
            job = repository.get(session, user.viewer, retry_of)
            values = {**values_of(job.spec, job.labels, job.deadline_seconds), **values}
    # A model that is known here costs nothing to look at; others wait for the page's script.
    known = values.get("model") in tools.catalog.models
    checked = _checked(values, user, tools, None) if known else Checked()
    return _page(tools, values, checked, retry_of, uuid4().hex)


def _job_id(form: Form) -> UUID | None:
    try:
        return UUID(form.text("from")) if form.has("from") else None
    except ValueError as error:
        raise InvalidRequestError("this is no job's id", field="from") from error


def _checked(values: Values, user: User, tools: Toolbox, token: SecretStr | None) -> Checked:
    known = frozenset(
        {*FREE, *(one.name for part in (*METHODS, *SECTIONS) for one in settings_of(part, values))}
    )
    early = _missing(values)
    if early:
        return Checked(flaws=early)
    try:
        submission = JobSubmission.model_validate(submission_of(values))
        return Checked(submission, validation.validate_job(submission, user.viewer, tools, token))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        return Checked(flaws=[Flaw(field_of(one["loc"], known), _sentence(one["msg"])) for one in found])
    except GhostedError as error:
        if isinstance(error, UnauthenticatedError):
            raise
        return Checked(flaws=[_flaw_of(error, known)])


def _missing(values: Values) -> list[Flaw]:
    found = []
    if not values.get("model") and not values.get("advanced"):
        found.append(Flaw("model", "Name a model."))
    if not values.get("layers") and values.get("strategy") != "explicit" and not values.get("advanced"):
        found.append(Flaw("layers", "Say how many layers go: 5, or 25%."))
    return found


def _flaw_of(error: GhostedError, known: frozenset[str]) -> Flaw:
    problem = problem_of(error)
    name = field_of((problem.field or "").split("."), known)
    return Flaw(name, f"{_sentence(problem.detail)} {problem.advice}")


def _sentence(text: str) -> str:
    text = text.removeprefix("Value error, ")
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


Made = Annotated[SubmitPage, Depends(submit_page)]


@router.get("/submit.json")
def submit_json(request: Request, page: Made) -> Response:
    """The page's data."""
    return twin(request, page)


@router.get("/submit")
def submit_html(request: Request, page: Made, user: CurrentUser) -> Response:
    """The page."""
    return render(request, "submit.html", page, user)


@router.post("/submit")
def send(request: Request, form: SentForm, user: ChangingUser, tools: Tools) -> Response:
    """The job is queued, once; or the form says what is wrong. With `action=check` nothing is queued."""
    values = {name: form.text(name) for name in form.fields if name not in {"from", "idempotency_key"}}
    key = form.text("idempotency_key") or uuid4().hex
    retry_of = _job_id(form)
    token, flaw = _token(form, tools)
    checked = Checked(flaws=[flaw]) if flaw is not None else _checked(values, user, tools, token)
    checking = form.text("action") == "check"
    if checked.submission is not None and not checking:
        desk = Desk(user.viewer, tools, key, token)
        try:
            job_id = _queued(desk, checked.submission, retry_of)
            return RedirectResponse(f"/jobs/{job_id}", HTTPStatus.SEE_OTHER)
        except GhostedError as error:
            checked = Checked(None, checked.foreseen, [_flaw_of(error, frozenset(FREE))])
    page = _page(tools, values, checked, retry_of, key)
    status = HTTPStatus.UNPROCESSABLE_ENTITY if checked.flaws and not checking else HTTPStatus.OK
    return render(request, "submit.html", page, user, status=status)


def _token(form: Form, tools: Toolbox) -> tuple[SecretStr | None, Flaw | None]:
    text = form.text("hub_token")
    if not text:
        return None, None
    if tools.settings.secret_key is None or not HUB_TOKEN.fullmatch(text):
        return None, Flaw("hub_token", "This is no token of the Hub, or none are taken here.")
    return SecretStr(text), None


def _queued(desk: Desk, submission: JobSubmission, retry_of: UUID | None) -> UUID:
    """The job that the form asks for; a form sent twice asks for one.

    Raises:
        GhostedError: it cannot be had now.
    """
    operation = "submit" if retry_of is None else f"retry {retry_of}"
    attempted = desk.attempted(operation, submission.model_dump(mode="json"))
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            answer = desk.take(attempted, lambda _: submission, retry_of)
        except IdempotencyBusyError:
            if time.monotonic() > until:
                raise
            time.sleep(BUSY_PAUSE_SECONDS)
        else:
            return UUID(json.loads(answer.body)["id"])
