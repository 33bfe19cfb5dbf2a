"""Which device a job runs on."""

import torch

from ghosted_core.errors import InvalidSpecError


def pick_device(name: str) -> str:
    """`name` if torch can use it; for 'auto' the GPU if there is one, else the CPU.

    Raises:
        InvalidSpecError: there is no such device here.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidSpecError(
            f"'{name}' is not a device.", advice="Use auto, cpu, cuda or cuda:N."
        ) from error
    if device.type not in {"cpu", "cuda"}:
        raise InvalidSpecError(f"Device '{name}' is not supported.", advice="Use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidSpecError(
            f"There is no device '{name}' here: torch {torch.__version__} sees "
            f"{torch.cuda.device_count()} GPU(s).",
            advice="Use --device cpu, or install a CUDA build of torch.",
        )
    return name
