"""Forms: what was sent, and whether it was sent by a page of ours that the user looks at.

A form is taken if its token is that of the login and if the browser says that it comes from here.
Where no login is needed there is no token, and the browser's word alone keeps other sites out.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from fastapi import Depends, Request

from services.auth.scopes import Scope
from services.dashboard.user import CurrentUser, User
from services.dependencies import Tools
from services.errors import ForeignFormError, InvalidRequestError

MOST_FIELDS = 500
TOKEN_FIELD = "csrf_token"  # noqa: S105 - the name of a field


@dataclass(frozen=True)
class Form:
    """The fields of a form, or of an address's query."""

    fields: Mapping[str, list[str]]

    def text(self, name: str, default: str = "") -> str:
        """The last value of a field, without white space around it."""
        values = self.fields.get(name)
        return values[-1].strip() if values else default

    def has(self, name: str) -> bool:
        """Whether the field was sent with anything in it."""
        return bool(self.text(name))


def read_form(encoded: str) -> Form:
    """The fields of `a=1&b=2`.

    Raises:
        InvalidRequestError: it is no such text, or has too many fields.
    """
    try:
        found = parse_qs(encoded, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidRequestError("this is no form, or one with too many fields") from error
    return Form(found)


async def _sent(request: Request) -> Form:
    body = await request.body()
    return read_form(body.decode("ascii", "replace"))


SentForm = Annotated[Form, Depends(_sent)]


def check_origin(request: Request, public_base_url: str | None) -> None:
    """Return if the browser says that a page of this service sent the request, or is no browser.

    Raises:
        ForeignFormError: another site did.
    """
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    here = {request.headers.get("Host", ""), urlsplit(public_base_url or "").netloc}
    foreign_origin = origin is not None and (urlsplit(origin).netloc or "?") not in here
    if site not in {None, "same-origin"} or foreign_origin:
        raise ForeignFormError("this form was sent by another site")


def _acting(request: Request, form: SentForm, user: CurrentUser, tools: Tools) -> User:
    check_origin(request, tools.settings.public_base_url)
    if not hmac.compare_digest(form.text(TOKEN_FIELD).encode(), user.csrf_token.encode()):
        raise ForeignFormError("this form belongs to another login")
    return user


def _changing(user: Annotated[User, Depends(_acting)]) -> User:
    user.caller.require(Scope.SUBMIT)
    return user


# Who sent a form of ours, and who may change jobs by it.
ActingUser = Annotated[User, Depends(_acting)]
ChangingUser = Annotated[User, Depends(_changing)]
