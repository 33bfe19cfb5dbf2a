"""What a key may do."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from services.errors import ScopeMissingError


class Scope(StrEnum):
    """A kind of request. A key has any set of these; none implies another."""

    READ = "read"  # see what is its own: jobs, events, artifacts
    SUBMIT = "submit"  # submit, cancel, upload: whatever changes something
    ADMIN = "admin"  # see and steer what belongs to nobody, such as the workers


USUAL_SCOPES = (Scope.READ, Scope.SUBMIT)
ALL_SCOPES = tuple(Scope)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Caller:
    """Who sent a request; `key_id` None: anyone, where authentication is off.

    `prefix` is the part of the key that is no secret.
    """

    key_id: UUID | None
    scopes: frozenset[str]
    prefix: str | None = None

    def require(self, scope: Scope) -> None:
        """Return if the caller has `scope`.

        Raises:
            ScopeMissingError: it has not.
        """
        if scope not in self.scopes:
            raise ScopeMissingError(f"this key has not the scope '{scope}'")


ANYONE = Caller(None, frozenset(ALL_SCOPES))


def scope_for(method: str) -> Scope:
    """What a request of this HTTP method needs, unless its endpoint asks for more."""
    return Scope.READ if method in SAFE_METHODS else Scope.SUBMIT


def sorted_scopes(scopes: Iterable[str]) -> list[str]:
    """Each scope once, in the order of `Scope`.

    Raises:
        ValueError: one is not a scope.
    """
    wanted = {Scope(scope) for scope in scopes}
    return [scope.value for scope in Scope if scope in wanted]
