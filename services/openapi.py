"""The API's description, completed with what FastAPI does not know: problems, headers, links, examples.

`python -m services.openapi` writes it to docs/openapi.json, which a test compares with the code.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from services.examples import EXAMPLES
from services.openapi_parts import (
    HEADERS,
    LINKED,
    LINKS,
    OPENED_TAGS,
    SUCCESS_HEADERS,
    SUCCESSES,
    problems_of,
)
from services.problems import MEDIA_TYPE, Problem

REF = "#/components/schemas/{model}"
DOCUMENT = Path("docs") / "openapi.json"
# Paths of the server's machine: the library knows them, the service refuses them.
LOCAL_ONLY = frozenset({"LocalModel", "LocalText"})
# FastAPI's own form of validation errors is never sent.
UNUSED = frozenset({"HTTPValidationError", "ValidationError"})


def operation_id(route: APIRoute) -> str:
    """The name of the function that answers: what a generated client calls its method."""
    return route.name


def install(app: FastAPI) -> None:
    """`app` serves the completed description."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _description(app)
        return app.openapi_schema

    # FastAPI's documented way to change the description is to take the method's place.
    app.openapi = describe  # type: ignore[method-assign]


def _description(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=OPENED_TAGS,
        servers=[{"url": "/", "description": "This service."}],
    )
    components = schema.setdefault("components", {})
    models = components.setdefault("schemas", {})
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            _complete(path, operation)
            _describe_successes(operation["responses"], models)
    for unused in UNUSED | LOCAL_ONLY:
        models.pop(unused, None)
    models.update(_problem_models())
    components["headers"] = dict(HEADERS)
    _without_local(schema)
    return schema


def _problem_models() -> dict[str, Any]:
    described = Problem.model_json_schema(ref_template=REF)
    return {**described.pop("$defs"), "Problem": described}


def _complete(path: str, operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    responses = operation["responses"]
    for status, response in SUCCESSES.get(name, {}).items():
        responses[status] = response
    for code, problem in problems_of(path, operation).items():
        responses[str(code)] = _problem_response(problem.description, problem.codes, problem.headers)
    for status, names in SUCCESS_HEADERS.get(name, {}).items():
        responses[status]["headers"] = _headers(names)
    for status in LINKED.get(name, ()):
        responses[status]["links"] = LINKS
    if name in EXAMPLES:
        operation["requestBody"]["content"]["application/json"]["examples"] = EXAMPLES[name]


def _describe_successes(responses: dict[str, Any], models: Mapping[str, Any]) -> None:
    """What FastAPI calls a successful response is called what its model is."""
    for response in responses.values():
        if response["description"] != "Successful Response":
            continue
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        model = models.get(schema.get("$ref", "").rpartition("/")[2], {})
        response["description"] = model.get("description", "Done.").partition("\n")[0]


def _headers(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _problem_response(description: str, codes: Mapping[str, Any], headers: tuple[str, ...]) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": {"$ref": REF.format(model="Problem")}}
    if codes:
        content["examples"] = {code: {"value": value} for code, value in codes.items()}
    response: dict[str, Any] = {"description": description, "content": {MEDIA_TYPE: content}}
    return response | ({"headers": _headers(headers)} if headers else {})


def _without_local(part: Any) -> None:
    """No choice below `part` offers what the service refuses."""
    if isinstance(part, list):
        for item in part:
            _without_local(item)
        return
    if not isinstance(part, dict):
        return
    refused = {REF.format(model=model) for model in LOCAL_ONLY}
    for word in ("anyOf", "oneOf"):
        if word in part:
            part[word] = [choice for choice in part[word] if choice.get("$ref") not in refused]
    mapping = part.get("mapping")
    if isinstance(mapping, dict):
        mapping.pop("local", None)
    for value in part.values():
        _without_local(value)


def rendered(app: FastAPI) -> str:
    """The description as it is committed."""
    return json.dumps(app.openapi(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write docs/openapi.json below the current folder, or the file that is named."""
    from services.app import create_app
    from services.config import Settings

    # Nothing connects: no setting shows in the description.
    nowhere = {
        "database_url": "postgresql://nobody@localhost/none",
        "redis_url": "redis://localhost/0",
        "s3_access_key": "none",
        "s3_secret_key": "none",
    }
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    target.write_text(rendered(create_app(Settings.model_validate(nowhere))), encoding="utf-8")


if __name__ == "__main__":
    main()
