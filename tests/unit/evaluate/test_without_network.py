import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ghosted_core.evaluate import chat_template, memory, tasks
from ghosted_core.network import MACHINES

# What the process does once it has begun: nothing was asked and nothing foreign imported before.
SCRIPT = """
import importlib, sys
from ghosted_core.network import may_reach_others
runner = importlib.import_module(sys.argv[1])
runner.own_stdin = lambda: sys.exit(3 if may_reach_others() else 4)
runner.main()
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in MACHINES, reason="seccomp filters are Linux's"
)
@pytest.mark.parametrize("module", [tasks.MODULE, chat_template.MODULE, memory.MODULE])
def test_our_own_processes_reach_nobody(module: str) -> None:
    """Before they read what they are asked, whoever started them."""
    command = [sys.executable, "-c", SCRIPT, module]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], check=False, timeout=120)
    assert done.returncode == 4
