"""Keeps Hub tokens unreadable in the database: authenticated encryption, the keys only in the settings."""

import base64
import json
from dataclasses import dataclass, field
from typing import Self
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import SecretStr

from services.errors import TokensNotAcceptedError, TokenUnreadableError

SHORTEST = 32
PURPOSE = b"ghosted: Hub tokens"


@dataclass(frozen=True)
class SecretBox:
    """Seals with the first key and opens with any: a new one in front rotates. Without keys it refuses."""

    keys: MultiFernet | None = field(repr=False)

    @classmethod
    def of(cls, secrets: SecretStr | None) -> Self:
        """The box of a setting: random texts of at least 32 characters, separated by commas.

        Raises:
            ValueError: one is too short; the message does not show it.
        """
        texts = [] if secrets is None else [text.strip() for text in secrets.get_secret_value().split(",")]
        if any(0 < len(text) < SHORTEST for text in texts):
            raise ValueError(f"each key must have at least {SHORTEST} random characters")
        fernets = [_fernet(text) for text in texts if text]
        return cls(MultiFernet(fernets) if fernets else None)

    def seal(self, token: SecretStr, job_id: UUID) -> str:
        """`token`, readable only with the keys and only as that of this job.

        Raises:
            TokensNotAcceptedError: there is no key.
        """
        body = json.dumps({"job": str(job_id), "token": token.get_secret_value()})
        return self._keys().encrypt(body.encode()).decode("ascii")

    def open(self, sealed: str, job_id: UUID) -> SecretStr:
        """The token that was sealed for this job.

        Raises:
            TokenUnreadableError: with other keys, or for another job.
        """
        try:
            body = json.loads(self._keys().decrypt(sealed))
        except (InvalidToken, TokensNotAcceptedError):
            raise TokenUnreadableError("the job's Hub token cannot be decrypted with today's keys") from None
        if body["job"] != str(job_id):
            raise TokenUnreadableError("the Hub token in this job's row is that of another job")
        return SecretStr(body["token"])

    def require_keys(self) -> None:
        """Return if tokens can be kept.

        Raises:
            TokensNotAcceptedError: there is no key.
        """
        self._keys()

    def _keys(self) -> MultiFernet:
        if self.keys is None:
            raise TokensNotAcceptedError("this service does not keep Hub tokens", field="X-Hub-Token")
        return self.keys


def _fernet(secret: str) -> Fernet:
    # The secret is random, not a password that people think up, so it needs no slow derivation.
    derived = HKDF(hashes.SHA256(), length=32, salt=None, info=PURPOSE).derive(secret.encode())
    return Fernet(base64.urlsafe_b64encode(derived))
