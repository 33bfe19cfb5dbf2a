"""A text of one's own goes to the service."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ghosted_client import requests
from ghosted_client.errors import ClientError, ConnectionFailedError, TransferFailedError
from ghosted_client.exchange import FIRST_ERROR_STATUS, Exchange
from ghosted_client.holdings import Upload, UploadBegun
from ghosted_client.patience import Patience
from ghosted_client.wire import Wire
from ghosted_core.errors import DataError, DataNotFoundError

FORMATS = {".txt": "txt", ".jsonl": "jsonl"}
FIRST_SERVER_FAULT = 500


def text_format(file: Path) -> str:
    """The format that the file's name tells.

    Raises:
        DataError: it is none that the service reads.
    """
    try:
        return FORMATS[file.suffix.lower()]
    except KeyError:
        raise DataError(
            f"'{file.name}' is neither .txt nor .jsonl.",
            advice="Send .txt with blank lines between documents, or .jsonl with an object a line.",
        ) from None


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: OSError) -> DataNotFoundError:
    return DataNotFoundError(f"The file '{file}' cannot be read: {type(error).__name__}.")


async def upload(exchange: Exchange, file: Path, on_bytes: Callable[[int], None]) -> Upload:
    """The file's text is at the service. See `Client.upload`."""
    begun = await exchange.ask(UploadBegun, requests.begin_upload(text_format(file), _size(file)))
    try:
        await _send(exchange.wire, begun.url, file, on_bytes)
        return await exchange.ask(Upload, requests.complete_upload(begun.id))
    except ClientError:
        # It would count against what the key may keep. What cannot be deleted ends by itself.
        with suppress(ClientError):
            await Exchange(exchange.wire, Patience(())).send(requests.delete_upload(begun.id))
        raise


async def _send(wire: Wire, url: str, file: Path, on_bytes: Callable[[int], None]) -> None:
    store = wire.elsewhere()
    try:
        for wait in (*Patience().waits_seconds, None):
            if await _sent(store, url, file, on_bytes, last=wait is None):
                return
            await wire.sleep(wait or 0.0)
    except OSError as error:
        raise _unreadable(file, error) from error
    finally:
        await store.close()


async def _sent(store: Wire, url: str, file: Path, on_bytes: Callable[[int], None], *, last: bool) -> bool:
    """Whether the object store has the file; raises TransferFailedError where another try is of no use."""
    sent = 0

    def count(size: int) -> None:
        nonlocal sent
        sent += size
        on_bytes(size)

    try:
        answer = await store.put(url, file, count)
        if answer.status < FIRST_ERROR_STATUS:
            return True
        why, passing = f"the store answered {answer.status}", answer.status >= FIRST_SERVER_FAULT
    except ConnectionFailedError as error:
        why, passing = error.message, True
    on_bytes(-sent)
    if last or not passing:
        raise TransferFailedError(f"{file.name}: {why}")
    return False
