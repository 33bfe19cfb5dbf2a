"""What of the worker's environment a job's process may see."""

import os
from collections.abc import Mapping
from pathlib import Path

import worker
from ghosted_core.environment import COMPUTING
from services.config import StoreSettings

# By name, not by exclusion: a credential that nobody thought of stays out.
ALLOWED = COMPUTING | frozenset(
    {
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


def courier_environment(outer: Mapping[str, str], scratch: Path, settings: StoreSettings) -> dict[str, str]:
    """The variables of the process that reaches the object store: those of a job's process and the store's.

    A runner may have left files in the home that they share; none of them has a say here.
    """
    given = {name: outer[name] for name in ("AWS_CA_BUNDLE",) if name in outer}
    shut = {
        "PYTHONNOUSERSITE": "1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return job_environment(outer, scratch) | given | shut | _variables(settings)


def _variables(settings: StoreSettings) -> dict[str, str]:
    values = {name: getattr(settings, name) for name in StoreSettings.model_fields}
    values["s3_secret_key"] = settings.s3_secret_key.get_secret_value()
    return {f"GHOSTED_{name.upper()}": str(value) for name, value in values.items() if value is not None}


def _import_paths(outer: Mapping[str, str]) -> list[str]:
    """Absolute, because the process works in another folder."""
    given = [entry for entry in outer.get("PYTHONPATH", "").split(os.pathsep) if entry]
    home = Path(worker.__file__).parents[1]
    return [str(home), *(str(Path(entry).resolve()) for entry in given if Path(entry).resolve() != home)]
