"""A line in the log for each link that is given out: a link opens what it names to whoever holds it."""

import logging
from typing import Literal

from services.auth.scopes import Caller

logger = logging.getLogger(__name__)


def link_given(caller: Caller, purpose: Literal["download", "upload"], seconds: int, **named: str) -> None:
    """The log says who got a link to what, for how long; never the link. The request's id is bound."""
    fields = {"key_prefix": caller.prefix, "purpose": purpose, "seconds": seconds, **named}
    logger.info("link given", extra={"fields": fields})
