import torch

from ghosted_core.model.capture import ResidualStream
from ghosted_core.model.families import family_of
from ghosted_core.testing import tiny_llama

TOKENS = torch.arange(3, 40)[None]


def stream_of(model: torch.nn.Module) -> ResidualStream:
    return ResidualStream(model, family_of("llama"))


def test_states_are_the_layers_inputs_and_the_last_is_before_the_norm() -> None:
    """x_0 .. x_{L-1} are transformers' hidden states; x_L goes through the norm to the last of them."""
    model = tiny_llama()
    found = stream_of(model).read(TOKENS, range(7))
    expected = model.model(TOKENS, output_hidden_states=True).hidden_states
    for index in range(6):
        assert torch.equal(found[index], expected[index])
    assert torch.equal(model.model.norm(found[6]), expected[6])
    assert not torch.equal(found[6], expected[6])


def test_layers_after_the_last_state_do_not_run() -> None:
    """Reading up to layer 3 costs three layers."""
    model = tiny_llama()
    ran: list[int] = []
    for index, layer in enumerate(model.model.layers):
        layer.register_forward_hook(lambda *_, index=index: ran.append(index))
    stream_of(model).read(TOKENS, [1, 3])
    assert ran == [0, 1, 2]


def test_the_model_is_left_as_it_was() -> None:
    """No hook stays behind."""
    model = tiny_llama()
    before = model(TOKENS).logits
    stream_of(model).read(TOKENS, [2])
    assert torch.equal(model(TOKENS).logits, before)
    assert not any(layer._forward_pre_hooks for layer in model.model.layers)
