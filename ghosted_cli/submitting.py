"""What `ghosted submit` and `ghosted retry` send, and what they do with a text of the user's own."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from ghosted_cli.request import job_spec, without_none
from ghosted_cli.transfer_progress import transfer_shown
from ghosted_client import Client, ClientError, Upload
from ghosted_client.uploading import FORMATS, text_format
from ghosted_core.errors import DataNotFoundError, InvalidSpecError
from ghosted_core.spec import JobSpec, UploadText

CORPORA = "corpora."
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


@dataclass(frozen=True)
class Texts:
    """The texts that a submission names, by their places: an alias of the service or a file here each.

    Places are `calibration`, `evaluation` and `corpora.NAME`; None is what a place has by itself.
    """

    named: Mapping[str, str | None]

    @classmethod
    def of(cls, calibration: str | None, evaluation: str | None, corpora: list[str] | None) -> "Texts":
        """As the options of that name say them; corpora are NAME or NAME=TEXT."""
        pairs = (corpus.partition("=") for corpus in corpora or ())
        own = {f"{CORPORA}{name}": text or None for name, _, text in pairs}
        return cls({"calibration": calibration, "evaluation": evaluation, **own})

    @property
    def files(self) -> dict[str, Path]:
        """The files that have to be uploaded, by their places.

        Raises:
            DataError: a file's name, but of none that can be uploaded.
        """
        found = {place: text_file(text) for place, text in self.named.items()}
        return {place: file for place, file in found.items() if file is not None}

    def in_spec(self, fields: Mapping[str, Any], uploaded: Mapping[str, Any]) -> JobSpec:
        """The spec of `fields` on these texts, with what was uploaded in the places of files.

        Raises:
            pydantic.ValidationError: it is none.
        """
        datasets = {place: uploaded.get(place, text) for place, text in self.named.items()}
        changed = {place: datasets[place] for place in ("calibration", "evaluation")}
        told = {name: _with_dataset(fields[name], dataset) for name, dataset in changed.items()}
        corpora = [
            without_none({"name": place.removeprefix(CORPORA), "dataset": dataset})
            for place, dataset in datasets.items()
            if place.startswith(CORPORA)
        ]
        if corpora and told["evaluation"] is not None:
            told["evaluation"] = {**told["evaluation"], "corpora": corpora}
        return job_spec({**fields, **told})


def _with_dataset(part: dict[str, Any] | None, dataset: Any) -> dict[str, Any] | None:
    return part if part is None or dataset is None else {**part, "dataset": dataset}


def check_repeatable(texts: Texts, idempotency_key: str | None) -> None:
    """Return if submitting the same again would be the same request.

    Raises:
        InvalidSpecError: each time another upload would be named.
    """
    if idempotency_key is not None and texts.files:
        raise InvalidSpecError(
            "--idempotency-key does not go with a file to upload: each time it is another upload.",
            advice=(
                "Leave the key out; or upload the file once, with ghosted_client, and submit the job "
                "that names the upload from there."
            ),
        )


@contextmanager
def spec_with_texts(client: Client, fields: dict[str, Any], texts: Texts) -> Iterator[JobSpec]:
    """The spec on `texts`: aliases, or files that are uploaded and named in it.

    A file that is named twice is uploaded once. If the block fails, the uploads are deleted again.
    """
    files = texts.files
    # What is wrong otherwise is told before anything is sent: any alias serves in a file's place.
    texts.in_spec(fields, dict.fromkeys(files, "uploaded"))
    sent: dict[Path, Upload] = {}
    try:
        for file in dict.fromkeys(files.values()):
            with transfer_shown("upload", file.stat().st_size) as on_bytes:
                sent[file] = client.upload(file, on_bytes=on_bytes)
        yield texts.in_spec(fields, {place: sent[file].dataset for place, file in files.items()})
    except BaseException:
        for upload in sent.values():
            forget(client, upload.id)
        raise


def forget_texts(client: Client, spec: JobSpec) -> None:
    """No upload that `spec` names is left, as far as the service answers."""
    named = [spec.calibration.dataset]
    if spec.evaluation is not None:
        named += [text for _, text in spec.evaluation.texts]
    for upload_id in {text.id for text in named if isinstance(text, UploadText)}:
        forget(client, upload_id)


def forget(client: Client, upload_id: UUID | str) -> None:
    """The upload is gone, if the service answers; else it ends by itself."""
    with suppress(ClientError):
        client.delete_upload(upload_id)
