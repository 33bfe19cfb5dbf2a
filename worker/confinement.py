"""What processes of the worker give up: the network once all is fetched, and being looked at by others."""

import ctypes
import logging
import sys

from ghosted_core.network import forbid_network

PR_SET_DUMPABLE = 4

logger = logging.getLogger(__name__)


def leave_network() -> None:
    """This process reaches no other machine any more; where that cannot be enforced, its log says so."""
    hub = sys.modules.get("huggingface_hub")
    if hub is not None:
        # Its connections would outlive the filter, which knows new sockets only.
        hub.close_session()
    if not forbid_network():
        logger.warning("this platform cannot take the network from a running process")


def close_to_others() -> None:
    """Other processes of this user can read neither environment nor memory of this one and its forks.

    Linux only, and no protection from root.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
