"""How alike the states between layers are, as a picture."""

import importlib.util
import os
import tempfile
from pathlib import Path

from ghosted_core.errors import InvalidSpecError, OutputUnusableError
from ghosted_core.folders import unusable

RESOLUTION = 150  # dots an inch


def require_heat_map(path: Path) -> None:
    """Make sure, before the work, that a picture can be drawn and put at `path`.

    Raises:
        InvalidSpecError: matplotlib is not installed, or the name is not that of a PNG file.
        OutputUnusableError: nothing can be written there.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidSpecError(
            "A heat map needs matplotlib, which is not installed.",
            advice="Install it with pip install 'ghosted[plot]', or leave out --heat-map.",
        )
    if path.suffix.lower() != ".png":
        raise InvalidSpecError(f"'{path.name}' does not end in .png.", advice="Name a .png file.")
    if path.is_dir():
        raise OutputUnusableError(f"'{path}' is a folder.", advice="Name a .png file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _temporary(path).unlink()
    except OSError as error:
        raise unusable(path, error) from error


def write_heat_map(cosines: list[list[float]], path: Path, title: str) -> None:
    """`path` is a PNG of the matrix of cos(x_i, x_j), whole or not there; an older one is replaced.

    Raises:
        OutputUnusableError: nothing can be written there.
    """
    try:
        temporary = _temporary(path)
        try:
            _draw(cosines, temporary, title)
            # Made private; a picture is readable like any other file of the user.
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise unusable(path, error) from error


def _draw(cosines: list[list[float]], path: Path, title: str) -> None:
    # A figure of its own, not pyplot: no window system and no state of the process is touched.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(cosines, origin="lower", cmap="viridis")
    axes.set_xlabel("state j: input of layer j, the last one the output of all")
    axes.set_ylabel("state i")
    # The title is a model's name: as it is, not as a formula.
    axes.set_title(title, parse_math=False)
    figure.colorbar(image, label="mean over tokens of cos(x_i, x_j)")
    figure.savefig(path, format="png", dpi=RESOLUTION)


def _temporary(path: Path) -> Path:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.partial-")
    os.close(descriptor)
    return Path(name)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
