"""What `ghosted submit` and `ghosted retry` send, and what they do with a text of the user's own."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from ghosted_cli.transfer_progress import transfer_shown
from ghosted_client import Client, ClientError, Upload
from ghosted_client.uploading import FORMATS, text_format
from ghosted_core.errors import DataNotFoundError, InvalidSpecError
from ghosted_core.spec import LocalText

TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105  The name of a variable.


Labels = Annotated[list[str] | None, typer.Option("--label", help="NAME=TEXT, given back with the job.")]
Deadline = Annotated[int | None, typer.Option(min=1, help="Seconds that the job may run.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key", help="A text of your own: within 24 hours, it makes one job however often sent."
    ),
]
HubToken = Annotated[
    bool, typer.Option("--hub-token", help="Send the Hub token in $HF_TOKEN along, for gated models.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Watch the job until it ends.")]


@dataclass(frozen=True)
class SubmissionOptions:
    """What is said beside what the job is to do."""

    label: Labels = None
    deadline: Deadline = None
    idempotency_key: Key = None
    token: HubToken = False
    wait: Wait = False

    @property
    def labels(self) -> dict[str, str] | None:
        """The labels; None where none is given.

        Raises:
            InvalidSpecError: one has another form.
        """
        return None if self.label is None else labels_of(self.label)

    @property
    def hub_token(self) -> str | None:
        """The user's token of the Hub, if it is to be sent.

        Raises:
            InvalidSpecError: there is none.
        """
        return hub_token() if self.token else None


def labels_of(given: list[str]) -> dict[str, str]:
    """NAME=TEXT each as labels.

    Raises:
        InvalidSpecError: another form.
    """
    labels = {}
    for one in given:
        name, separator, text = one.partition("=")
        if not separator:
            raise InvalidSpecError(f"the label '{one}' is not of the form NAME=TEXT")
        labels[name] = text
    return labels


def hub_token() -> str:
    """The user's token of the Hub.

    Raises:
        InvalidSpecError: there is none.
    """
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise InvalidSpecError(
            f"--hub-token is given, but {TOKEN_VARIABLE} is not set.",
            advice=f"Put a token that may read the model in the environment variable {TOKEN_VARIABLE}.",
        )
    return token


def service_text(text: str | None) -> dict[str, Any] | str | None:
    """A file here, which is to be uploaded, or an alias of the service; None stays None.

    Raises:
        DataError: it is a file's name, but of none that can be uploaded.
    """
    if text is None:
        return None
    path = Path(text).expanduser()
    if not (path.exists() or "/" in text or path.suffix.lower() in FORMATS):
        return text
    text_format(path)
    if not path.is_file():
        raise DataNotFoundError(f"There is no file '{path}'.")
    return LocalText(path=str(path)).model_dump()


def check_repeatable(fields: Mapping[str, Any], idempotency_key: str | None) -> None:
    """Return if submitting `fields` again would be the same request.

    Raises:
        InvalidSpecError: each time another upload would be named.
    """
    files: list[Path] = []
    _in_place_of_files(fields, files.append)
    if idempotency_key is not None and files:
        raise InvalidSpecError(
            "--idempotency-key does not go with a file to upload: each time it is another upload.",
            advice=(
                "Leave the key out; or upload the file once, with ghosted_client, and submit the job "
                "that names the upload from there."
            ),
        )


@dataclass(frozen=True)
class Uploads:
    """The files that a request names, at the service; each of them once."""

    client: Client
    sent: dict[Path, Upload] = field(default_factory=dict)

    def named_in(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """`fields` of a spec with an upload in the place of each file, which the service then has."""
        told: dict[str, Any] = _in_place_of_files(fields, self._dataset)
        return told

    @contextmanager
    def forgotten_on_failure(self) -> Iterator[None]:
        """If the block fails, none of them is left."""
        try:
            yield
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        """None of them is left, as far as the service answers; else they end by themselves."""
        for upload in self.sent.values():
            with suppress(ClientError):
                self.client.delete_upload(upload.id)

    def _dataset(self, file: Path) -> dict[str, Any]:
        if file not in self.sent:
            with transfer_shown("upload", file.stat().st_size) as on_bytes:
                self.sent[file] = self.client.upload(file, on_bytes=on_bytes)
        return self.sent[file].dataset


def _in_place_of_files(part: Any, told: Callable[[Path], Any]) -> Any:
    """`part` of a spec with what `told` says in the place of each file that it names."""
    if isinstance(part, list):
        return [_in_place_of_files(one, told) for one in part]
    if not isinstance(part, Mapping):
        return part
    if part.get("kind") == "local":
        return told(Path(part["path"]))
    return {name: _in_place_of_files(value, told) for name, value in part.items()}
