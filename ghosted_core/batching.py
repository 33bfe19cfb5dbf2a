"""How text is cut into batches. Free of torch, so that what they take can be estimated without it."""

# Tokens in one forward pass: enough to fill the arithmetic units, little enough to bound memory.
BATCH_TOKENS = 2048
