"""Training-free layer pruning for decoder language models."""
