"""What `ghosted submit` and `ghosted retry` send, and what they do with a text of the user's own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from ghosted_cli.request import job_spec
from ghosted_cli.transfer_progress import transfer_shown
from ghosted_client import Client, ClientError
from ghosted_client.uploading import FORMATS, text_format
from ghosted_core.errors import DataNotFoundError, InvalidSpecError
from ghosted_core.spec import JobSpec

TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105  The name of a variable.


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


def hub_token(*, wanted: bool) -> str | None:
    """The user's token of the Hub, if it is to be sent.

    Raises:
        InvalidSpecError: there is none.
    """
    if not wanted:
        return None
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise InvalidSpecError(
            f"--hub-token is given, but {TOKEN_VARIABLE} is not set.",
            advice=f"Put a token that may read the model in the environment variable {TOKEN_VARIABLE}.",
        )
    return token


def text_file(text: str | None) -> Path | None:
    """The file that `text` names; None if it is an alias of the service.

    Raises:
        DataError: it is a file's name, but of none that can be uploaded.
    """
    if text is None:
        return None
    path = Path(text).expanduser()
    if not (path.exists() or "/" in text or path.suffix.lower() in FORMATS):
        return None
    text_format(path)
    if not path.is_file():
        raise DataNotFoundError(f"There is no file '{path}'.")
    return path


def check_repeatable(text: str | None, idempotency_key: str | None) -> None:
    """Return if submitting the same again would be the same request.

    Raises:
        InvalidSpecError: each time another upload would be named.
    """
    if idempotency_key is not None and text_file(text) is not None:
        raise InvalidSpecError(
            "--idempotency-key does not go with a file to calibrate on: each time it is another upload.",
            advice=(
                "Leave the key out; or upload the file once, with ghosted_client, and submit the job "
                "that names the upload from there."
            ),
        )


@contextmanager
def spec_with_text(client: Client, fields: dict[str, Any], text: str | None) -> Iterator[JobSpec]:
    """The spec, calibrated on `text`: an alias, or a file that is uploaded and named in it.

    If the block fails, the upload is deleted again.
    """
    file = text_file(text)
    if file is None:
        yield job_spec(_calibrated(fields, text))
        return
    # What is wrong otherwise is told before anything is sent.
    job_spec(_calibrated(fields, None))
    with transfer_shown("upload", file.stat().st_size) as on_bytes:
        upload = client.upload(file, on_bytes=on_bytes)
    try:
        yield job_spec(_calibrated(fields, upload.dataset))
    except BaseException:
        forget(client, upload.id)
        raise


def forget(client: Client, upload_id: UUID | str) -> None:
    """The upload is gone, if the service answers; else it ends by itself."""
    with suppress(ClientError):
        client.delete_upload(upload_id)


def _calibrated(fields: dict[str, Any], dataset: Any) -> dict[str, Any]:
    if dataset is None:
        return fields
    return {**fields, "calibration": {**fields["calibration"], "dataset": dataset}}
