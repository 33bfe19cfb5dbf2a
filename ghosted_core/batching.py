"""How much goes through a model at once. A place of its own: estimates are made where no torch is."""

# Tokens in one forward pass: enough to fill the arithmetic units, little enough to bound memory.
BATCH_TOKENS = 2048
