"""Server-sent events from bytes, however they are cut: https://html.spec.whatwg.org, "event streams"."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ghosted_client.errors import UnexpectedAnswerError

# A message of the service is a job or an event. What never ends a line is not the service.
LONGEST_CHARACTERS = 16 << 20
LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True)
class Message:
    """A message: its kind and its text."""

    event: str
    data: str


@dataclass
class Decoder:
    """Takes a stream's bytes as they come, gives its messages."""

    _decode: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    )
    _rest: str = ""
    _event: str = ""
    _data: list[str] = field(default_factory=list)
    _held: int = 0

    def feed(self, piece: bytes) -> Iterator[Message]:
        """The messages that `piece` completes.

        Raises:
            UnexpectedAnswerError: a message is longer than any of the service.
        """
        self._rest += self._decode.decode(piece)
        start = 0
        for end in LINE_END.finditer(self._rest):
            if end[0] == "\r" and end.end() == len(self._rest):
                # The "\n" that belongs to it may be on its way.
                break
            message = self._line(self._rest[start : end.start()])
            start = end.end()
            if message is not None:
                yield message
        self._rest = self._rest[start:]
        if self._held + len(self._rest) > LONGEST_CHARACTERS:
            raise UnexpectedAnswerError("the event stream sends a message without end")

    def _line(self, line: str) -> Message | None:
        if not line:
            return self._end()
        name, _, text = line.partition(":")
        value = text.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
            self._held += len(value)
        return None

    def _end(self) -> Message | None:
        message = Message(self._event or "message", "\n".join(self._data)) if self._data else None
        self._event, self._data, self._held = "", [], 0
        return message
