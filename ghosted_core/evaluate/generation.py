"""A few words from the model: perplexity hides what generation shows."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase


@torch.no_grad()
def continuations(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], new_tokens: int
) -> dict[str, str]:
    """For each prompt, the greedy continuation of at most `new_tokens` tokens."""
    return {prompt: _continue(model, tokenizer, prompt, new_tokens) for prompt in prompts}


def _continue(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: str, new_tokens: int
) -> str:
    encoded = tokenizer(prompt, return_tensors="pt").to(model.device)
    output = model.generate(  # type: ignore[operator]
        input_ids=encoded["input_ids"],
        attention_mask=encoded["attention_mask"],
        max_new_tokens=new_tokens,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0,
    )
    return str(tokenizer.decode(output[0, encoded["input_ids"].shape[1] :], skip_special_tokens=True))
