"""The API's description, completed with the problems that every operation may answer with."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from services.problems import MEDIA_TYPE, Problem

REF = "#/components/schemas/{model}"
ANY_OPERATION = {500: "A fault of the service", 503: "A part that the service stands on does not answer"}
WITH_KEY = {401: "No valid key", 403: "The key may not do this", 429: "More than a key may do for now"}
WITH_JOB = {404: "No such job, or it is another's"}
WITH_UPLOAD = {404: "No such upload, or it is another's"}
WITH_INPUT = {422: "A field of the request is wrong"}
WITH_BODY = {400: "Not JSON", 413: "The body is too long", 415: "The body is not said to be JSON"}
CONFLICTS = {
    "/v1/uploads/{upload_id}": {409: "A job that waits or runs needs the upload"},
    "/v1/jobs/{job_id}": {409: "The job has not ended"},
    "/v1/jobs/{job_id}/cancel": {409: "The job has ended"},
    "/v1/jobs/{job_id}/artifact": {409: "The job has no artifact yet", 410: "The artifact is deleted"},
}


def install(app: FastAPI) -> None:
    """`app` serves the completed description."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _description(app)
        return app.openapi_schema

    # FastAPI's documented way to change the description is to take the method's place.
    app.openapi = describe  # type: ignore[method-assign]


def _description(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            _add_problems(path, operation)
    models = schema.setdefault("components", {}).setdefault("schemas", {})
    # FastAPI's own form of validation errors is never sent.
    for unused in ("HTTPValidationError", "ValidationError"):
        models.pop(unused, None)
    models.update(_problem_models())
    return schema


def _problem_models() -> dict[str, Any]:
    described = Problem.model_json_schema(ref_template=REF)
    return {**described.pop("$defs"), "Problem": described}


def _add_problems(path: str, operation: dict[str, Any]) -> None:
    problems = dict(ANY_OPERATION)
    problems |= WITH_KEY if "security" in operation else {}
    problems |= WITH_JOB if "{job_id}" in path else {}
    problems |= WITH_UPLOAD if "{upload_id}" in path else {}
    problems |= WITH_INPUT if "422" in operation["responses"] else {}
    problems |= WITH_BODY if "requestBody" in operation else {}
    problems |= CONFLICTS.get(path, {})
    for status, description in sorted(problems.items()):
        # Readiness says which part is missing, in its own form.
        if status == HTTPStatus.SERVICE_UNAVAILABLE and path == "/readyz":
            continue
        operation["responses"][str(status)] = _problem_response(description)


def _problem_response(description: str) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": REF.format(model="Problem")}}}
    return {"description": description, "content": content}
