"""Uploads as jobs name them."""

from collections.abc import Callable
from functools import partial
from uuid import UUID

from ghosted_core.spec import Evaluation, JobSpec, TextReference, UploadText
from services.db.models import Upload
from services.db.sessions import ReadSession
from services.errors import InvalidRequestError, UploadNotCompleteError
from services.uploads import repository

# What stands in a text's place; where in the spec that is, for people.
Change = Callable[[TextReference, str], TextReference]


def pinned_uploads(
    session: ReadSession, spec: JobSpec, owner_id: UUID | None, *, keep: bool = False
) -> JobSpec:
    """`spec` with the checksum of every upload that it names.

    With `keep`, which takes a transaction that may write, none of them is deleted before that ends.

    Raises:
        UploadNotFoundError: one is not there, or of another key.
        UploadNotCompleteError: one was not completed.
        InvalidRequestError: one has another checksum than the spec says.
    """
    return _changed(spec, partial(_pinned, lambda named: repository.get(session, owner_id, named, keep=keep)))


def named_uploads(spec: JobSpec) -> tuple[UploadText, ...]:
    """The uploads that `spec` names, each once."""
    named: list[UploadText] = []

    def note(text: TextReference, _: str) -> TextReference:
        if isinstance(text, UploadText):
            named.append(text)
        return text

    _changed(spec, note)
    return tuple(dict.fromkeys(named))


def _changed(spec: JobSpec, change: Change) -> JobSpec:
    """`spec` with `change` made to each text that it names."""
    calibration = spec.calibration.model_copy(
        update={"dataset": change(spec.calibration.dataset, "calibration.dataset")}
    )
    evaluation = None if spec.evaluation is None else _changed_evaluation(spec.evaluation, change)
    finetune = spec.finetune
    if finetune is not None and finetune.dataset is not None:
        told = change(finetune.dataset, "finetune.dataset")
        finetune = finetune.model_copy(update={"dataset": told})
    return spec.model_copy(
        update={"calibration": calibration, "evaluation": evaluation, "finetune": finetune}
    )


def _changed_evaluation(evaluation: Evaluation, change: Change) -> Evaluation:
    own, corpora = evaluation.dataset, list(evaluation.corpora)
    for index, corpus in enumerate(corpora):
        if corpus.dataset is not None:
            told = change(corpus.dataset, f"evaluation.corpora.{index}.dataset")
            corpora[index] = corpus.model_copy(update={"dataset": told})
    told_own = None if own is None else change(own, "evaluation.dataset")
    return evaluation.model_copy(update={"dataset": told_own, "corpora": tuple(corpora)})


def _pinned(find: Callable[[UUID], Upload], named: TextReference, field: str) -> TextReference:
    if not isinstance(named, UploadText):
        return named
    upload = find(named.id)
    if upload.sha256 is None:
        raise UploadNotCompleteError(f"the upload {named.id} was not completed", field=field)
    if named.sha256 not in {None, upload.sha256}:
        raise InvalidRequestError(f"the upload {named.id} has another sha256", field=f"{field}.sha256")
    return named.model_copy(update={"sha256": upload.sha256})
