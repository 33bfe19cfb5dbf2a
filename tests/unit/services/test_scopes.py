import pytest

from services.auth.scopes import ANYONE, Caller, Scope, scope_for, sorted_scopes
from services.errors import ScopeMissingError


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_looking_needs_read(method: str) -> None:
    """Safe methods need the scope to read."""
    assert scope_for(method) is Scope.READ


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "UNHEARD-OF"])
def test_everything_else_needs_submit(method: str) -> None:
    """A method that nobody thought of counts as one that changes something."""
    assert scope_for(method) is Scope.SUBMIT


@pytest.mark.parametrize("scope", Scope)
def test_no_scope_implies_another(scope: Scope) -> None:
    """A key has what it was given and nothing else."""
    caller = Caller(None, frozenset({scope.value}))
    caller.require(scope)
    for other in set(Scope) - {scope}:
        with pytest.raises(ScopeMissingError, match=other):
            caller.require(other)


def test_without_authentication_everyone_may_do_everything() -> None:
    """Where keys are off, nothing is refused."""
    for scope in Scope:
        ANYONE.require(scope)


def test_scopes_are_kept_in_one_order() -> None:
    """However they were given, each once."""
    assert sorted_scopes(["submit", "read", "submit"]) == ["read", "submit"]


def test_an_unknown_scope_is_refused() -> None:
    """A typing error gives no key."""
    with pytest.raises(ValueError, match="wrte"):
        sorted_scopes(["read", "wrte"])
