"""A way to a server that can be made to swallow everything."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

PIECE_BYTES = 65536


@dataclass
class Proxy:
    """Passes bytes between its port and the server's, until it is frozen: then it takes all and passes none.

    Neither side learns of that: its connections stay open, and new ones are taken.
    """

    port: int
    server: tuple[str, int]
    frozen: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)
    sockets: list[socket.socket] = field(default_factory=list)

    def freeze(self) -> None:
        """From now on nothing arrives."""
        self.frozen.set()

    def accept(self, listener: socket.socket) -> None:
        """Take connections until closed."""
        with contextlib.suppress(OSError):
            while not self.closed.is_set():
                client, _ = listener.accept()
                server = socket.create_connection(self.server)
                self.sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self.pass_on, args=(source, target), daemon=True).start()

    def pass_on(self, source: socket.socket, target: socket.socket) -> None:
        """Carry bytes one way until an end is closed."""
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if not self.frozen.is_set():
                    target.sendall(piece)
            if not self.frozen.is_set():
                target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy_to(host: str, port: int) -> Iterator[Proxy]:
    """A proxy on loopback; all its connections end with the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Proxy(listener.getsockname()[1], (host, port))
        thread = threading.Thread(target=made.accept, args=(listener,), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.closed.set()
            # Wakes the thread that waits for a connection.
            socket.create_connection(("127.0.0.1", made.port)).close()
            thread.join(10)
            for one in made.sockets:
                one.close()
