"""Answers that a poller need not read twice: an ETag with each, 304 while it holds."""

import hashlib
import re

from fastapi import Response
from pydantic import BaseModel

HEADERS = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
_TAG = re.compile(r'(?:W/)?("[^"]*")')


def tagged(content: BaseModel, if_none_match: str | None) -> Response:
    """`content` as JSON with its ETag; 304 without a body if the caller has it already."""
    body = content.model_dump_json().encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**HEADERS, "ETag": tag}
    if if_none_match is not None and holds(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def holds(if_none_match: str, tag: str) -> bool:
    """Whether the header `If-None-Match` names `tag`."""
    # RFC 9110, 13.1.2: a list of tags, compared weakly, or "*".
    return if_none_match.strip() == "*" or tag in _TAG.findall(if_none_match)
