"""How text is cut into batches. Free of torch, so that what they take can be estimated without it."""

# Tokens in one forward pass: enough to fill the arithmetic units, little enough to bound memory.
BATCH_TOKENS = 2048
# Positions whose logits are widened to float32 at once: bounds memory to this x vocabulary floats, which
# should stay in a processor's cache (256 took four times as long as 64, a vocabulary of 49,152).
CHUNK_POSITIONS = 64
# What the harness of benchmark tasks may hold of logits at a time; its own automatic size takes 26 GB on
# a CPU.
LOGIT_BYTES = 512 << 20
LARGEST_BATCH = 64
FLOAT32_BYTES = 4


def batch_size(length: int, vocabulary: int, logit_bytes: int) -> int:
    """How many sequences of `length` tokens have logits within the bound; at least one."""
    return max(1, min(LARGEST_BATCH, logit_bytes // (length * vocabulary * FLOAT32_BYTES)))
