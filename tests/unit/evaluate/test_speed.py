from typing import Any

import torch

from ghosted_core.evaluate.speed import speeds
from ghosted_core.testing import tiny_llama, tiny_mistral


def test_turns_alternate_and_decoding_uses_the_cache() -> None:
    """Each round asks every model once, in changing order; after the prompt, one token a step."""
    models = {"a": tiny_llama(2), "b": tiny_mistral(2)}
    seen: list[tuple[str, int]] = []
    for name, model in models.items():

        def note(_module: Any, args: Any, _kwargs: Any, name: str = name) -> None:
            seen.append((name, args[0].shape[1]))

        model.model.embed_tokens.register_forward_pre_hook(note, with_kwargs=True)
    turns: list[int] = []
    prompt = torch.arange(10)[None]
    found = speeds(models, prompt, new_tokens=3, rounds=2, advance=turns.append)
    order = [name for name, tokens in seen if tokens == 10]
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert [tokens for name, tokens in seen if name == "a"] == [10, 1, 1, 1] * 3
    assert turns == [1] * 6
    assert list(found) == ["a", "b"]
    for speed in found.values():
        assert 0 < speed.decode_range[0] <= speed.decode <= speed.decode_range[1]
        assert 0 < speed.prefill_range[0] <= speed.prefill <= speed.prefill_range[1]
        fastest, slowest = speed.first_token_range
        assert 0 < fastest <= speed.first_token_seconds <= slowest
        assert (speed.rounds, speed.prompt_tokens, speed.new_tokens) == (2, 10, 3)
