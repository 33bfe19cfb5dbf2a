import pytest
import torch

# Two cores at most: the suite shares the machine, and results must not depend on its size.
torch.set_num_threads(min(2, torch.get_num_threads()))


@pytest.fixture
def generator() -> torch.Generator:
    """A seeded source of random numbers."""
    return torch.Generator().manual_seed(20260515)
