"""API keys: who may call, and whose jobs they see."""
