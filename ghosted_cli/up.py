"""`ghosted up`: the whole service on this machine, until stopped."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from ghosted_cli.compress import Cache, Device
from ghosted_cli.exits import exit_codes
from ghosted_cli.request import cache_folder

WATCH_SECONDS = 0.5
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

READY = """
Ghosted is ready.

  address    {url}    (described at {url}/openapi.json)
  key        {key}
  logs       {folder}/logs

Submit a job from another terminal:

  export GHOSTED_URL={url} GHOSTED_API_KEY={key}
  ghosted submit smollm2-135m-instruct --layers 7 --sequences 16 --sequence-length 512 --wait

Ctrl-C stops everything; data stay in {folder} for the next start."""


def data_folder(given: Path | None) -> Path:
    """Where the service's data are kept: as given, or the user's own data folder."""
    if given is not None:
        return given.expanduser()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "ghosted"


def up(
    data: Annotated[Path | None, typer.Option(help="Folder of data, credentials and logs.")] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the API (else 8000 if it is free).")
    ] = None,
    device: Device = "auto",
    cache: Cache = None,
) -> None:
    """Run PostgreSQL, Redis, S3, API, relay and a worker on loopback until Ctrl-C.

    GHOSTED_DATABASE_URL, GHOSTED_REDIS_URL, and GHOSTED_S3_ENDPOINT with its keys put servers of your own
    in place of a part; other settings of the service count too.
    """
    with exit_codes(as_json=False, interrupted="Stopped; nothing runs any more."):
        from ghosted_cli.installation import Wanted, external_parts, run_installation

        console = Console(highlight=False, markup=False, soft_wrap=True)
        wanted = Wanted(
            folder=data_folder(data),
            cache=cache_folder(cache),
            port=port,
            device=device,
            external=external_parts(os.environ),
        )
        with interrupts_kept() as interrupted, run_installation(wanted, console.print) as running:
            console.print(READY.format(url=running.url, key=running.key, folder=running.folder))
            while not interrupted.wait(WATCH_SECONDS):
                running.check()
            raise KeyboardInterrupt


@contextmanager
def interrupts_kept() -> Iterator[threading.Event]:
    """What stops the service raises as ever within the body, and sets the event: Ctrl-C, or a signal to end.

    Python drops an exception that is raised while it runs a destructor or a callback of its own: without the
    event, one Ctrl-C in such a moment would be no Ctrl-C at all.
    """
    seen = threading.Event()
    # Where a shell has one ignored, for what runs in the background, it stays so.
    before = {number: handler for number in STOPPING if callable(handler := signal.getsignal(number))}

    def note(number: int, frame: FrameType | None) -> None:
        seen.set()
        before[signal.Signals(number)](number, frame)

    for number in before:
        signal.signal(number, note)
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
