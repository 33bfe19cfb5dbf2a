import pytest
import torch


@pytest.fixture(autouse=True)
def gpu() -> torch.device:
    """The first GPU; where torch sees none, the test is skipped and says so."""
    if not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} sees no GPU here")
    return torch.device("cuda")
