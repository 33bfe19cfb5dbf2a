from io import StringIO

from rich.console import Console

from ghosted_cli.service_progress import PLAIN_INTERVAL_SECONDS
from ghosted_cli.transfer_progress import PlainTransfer, transfer_shown


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_rare_and_count_all_bytes() -> None:
    """At most one every few seconds; bytes that are taken back count too."""
    now = [0.0]
    text = StringIO()
    plain = PlainTransfer("pull", 3000, Console(file=text), clock=lambda: now[0])
    for size in (1000, 1500, -500):
        plain.add(size)
    now[0] = PLAIN_INTERVAL_SECONDS
    plain.add(0)
    assert text.getvalue() == "pull: 2,000 of 3,000 bytes\n"


def test_only_a_terminal_gets_a_bar() -> None:
    """Elsewhere nothing moves the cursor, and a short transfer says nothing."""
    shown = {}
    for stream in (StringIO(), Terminal()):
        with transfer_shown("pull", 10, stream) as on_bytes:
            on_bytes(10)
        shown[type(stream)] = stream.getvalue()
    assert not shown[StringIO]
    assert "\033[" in shown[Terminal]
