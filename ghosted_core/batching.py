"""How text is cut into batches. Free of torch, so that what they take can be estimated without it."""

# Tokens in one forward pass: enough to fill the arithmetic units, little enough to bound memory.
BATCH_TOKENS = 2048
# What the harness of benchmark tasks may hold of logits at a time; its own automatic size takes 26 GB on
# a CPU.
LOGIT_BYTES = 512 << 20
LARGEST_BATCH = 64
FLOAT32_BYTES = 4


def batch_size(length: int, vocabulary: int, logit_bytes: int) -> int:
    """How many sequences of `length` tokens have logits within the bound; at least one."""
    return max(1, min(LARGEST_BATCH, logit_bytes // (length * vocabulary * FLOAT32_BYTES)))
