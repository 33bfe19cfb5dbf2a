import hashlib

import pytest

from services.auth.keys import digest_of, fresh_key, matches, prefix_of


def test_a_key_matches_its_own_digest_only() -> None:
    """The digest of one key does not open the door to another."""
    first, second = fresh_key(), fresh_key()
    assert matches(first.plain, first.digest)
    assert not matches(first.plain, second.digest)
    assert first.digest == hashlib.sha256(first.plain.encode()).hexdigest() == digest_of(first.plain)


def test_a_key_is_found_by_its_prefix() -> None:
    """The prefix is part of the key, and well-formed keys give it back."""
    key = fresh_key()
    assert prefix_of(key.plain) == key.prefix


@pytest.mark.parametrize(
    "text", ["", "ghosted_", "ghosted_12345678_short", "x" * 10_000, "ghosted_ZZZZZZZZ_" + "a" * 43]
)
def test_other_texts_have_no_prefix(text: str) -> None:
    """What is not formed like a key is not looked up."""
    assert prefix_of(text) is None


def test_a_key_does_not_print_itself() -> None:
    """Logging a fresh key by accident shows its prefix only."""
    key = fresh_key()
    assert key.plain not in repr(key)
    assert key.digest not in repr(key)
