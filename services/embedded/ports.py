"""Free ports of the loopback interface."""

import random
import socket
from collections.abc import Sequence

from services.embedded.errors import EmbeddedError

LOOPBACK = "127.0.0.1"
# Below the range from which Linux takes the ports of outgoing connections, so that none of those
# lands on a port between our finding it free and a part listening on it.
LOWEST, HIGHEST = 15000, 32000
TRIES = 500


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def find_free(count: int) -> tuple[int, ...]:
    """`count` different ports that were free a moment ago; a caller tries again if one is lost.

    Raises:
        EmbeddedError: nearly all ports are taken.
    """
    # Chance, not a seed: two stacks that start together must not try the same ports.
    candidates = random.SystemRandom().sample(range(LOWEST, HIGHEST), TRIES)
    free = [port for port in candidates if is_free(port)]
    if len(free) < count:
        raise EmbeddedError(f"Found {len(free)} free ports of {TRIES} tried on {LOOPBACK}, need {count}.")
    return tuple(free[:count])


def any_taken(ports: Sequence[int]) -> bool:
    """Whether something else holds one of `ports`, which no process of ours does now."""
    return not all(is_free(port) for port in ports)
