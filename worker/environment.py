"""What of the worker's environment a job's process may see."""

import os
from collections.abc import Mapping
from pathlib import Path

import worker

# By name, not by exclusion: a credential that nobody thought of stays out.
ALLOWED = frozenset(
    {
        "PATH",
        "LD_LIBRARY_PATH",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "HF_ENDPOINT",
        "HF_HUB_OFFLINE",
        "PIP_CONFIG_FILE",
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "PIP_FIND_LINKS",
        "PIP_NO_INDEX",
        "PIP_CERT",
    }
)


def job_environment(outer: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The variables of a job's process: what it needs to run, and folders below `scratch` for its traces.

    A home of its own keeps tokens and credentials that lie in the worker's home out of reach.
    """
    kept = {name: value for name, value in outer.items() if name in ALLOWED}
    own = {
        "HOME": str(scratch / "home"),
        "TMPDIR": str(scratch / "tmp"),
        "HF_HOME": str(scratch / "home" / "huggingface"),
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Some libraries ask for the user's name, which a container may not have.
        "USER": "ghosted",
        "PYTHONPATH": os.pathsep.join(_import_paths(outer)),
        "PYTHONFAULTHANDLER": "1",
    }
    return kept | own


def _import_paths(outer: Mapping[str, str]) -> list[str]:
    """Absolute, because the process works in another folder."""
    given = [entry for entry in outer.get("PYTHONPATH", "").split(os.pathsep) if entry]
    home = Path(worker.__file__).parents[1]
    return [str(home), *(str(Path(entry).resolve()) for entry in given if Path(entry).resolve() != home)]
