import pytest
from sqlalchemy.exc import OperationalError

from ghosted_cli import installation
from services.embedded.errors import EmbeddedError


@pytest.mark.parametrize(
    ("cause", "expected"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError("gone"), EmbeddedError)]
)
def test_ctrl_c_within_a_statement_stays_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, cause: BaseException, expected: type[BaseException]
) -> None:
    """SQLAlchemy makes one error of an interrupt and of a server that is gone, and we another of that."""

    def fail(_: str) -> None:
        raise OperationalError("SELECT 1", None, cause) from cause

    monkeypatch.setattr(installation, "upgrade", fail)
    with pytest.raises(expected), installation.interrupts_unwrapped():
        installation._upgrade("postgresql://127.0.0.1/none")
