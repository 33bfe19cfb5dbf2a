"""What opens the parts: generated once for a data folder, kept beside the data."""

import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

from services.embedded.errors import FolderUnusableError
from services.embedded.files import write_private

FILE_NAME = "credentials.json"


def _secret() -> str:
    # 192 bits in letters that need no quoting in a URL, a TOML string or a Redis file.
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Credentials:
    """Passwords and keys of one data folder; none of them shows in a representation."""

    postgres_password: str = field(default_factory=_secret, repr=False)
    redis_password: str = field(default_factory=_secret, repr=False)
    s3_access_key: str = field(default_factory=_secret, repr=False)
    s3_secret_key: str = field(default_factory=_secret, repr=False)
    volume_write_key: str = field(default_factory=_secret, repr=False)
    volume_read_key: str = field(default_factory=_secret, repr=False)
    filer_write_key: str = field(default_factory=_secret, repr=False)
    filer_read_key: str = field(default_factory=_secret, repr=False)
    secret_key: str = field(default_factory=_secret, repr=False)


def load_or_create(data_folder: Path) -> Credentials:
    """The credentials of `data_folder`, made now if it has none yet.

    Raises:
        FolderUnusableError: the file there is not one of ours.
    """
    path = data_folder / FILE_NAME
    try:
        kept = json.loads(path.read_text()) if path.exists() else {}
        credentials = Credentials(**kept)
    except (ValueError, TypeError) as error:
        raise FolderUnusableError(f"{path} does not hold the credentials of a stack.") from error
    # Also the file of an older version, which knew fewer.
    if kept != asdict(credentials):
        write_private(path, json.dumps(asdict(credentials), indent=2))
    return credentials
