"""Decoder models as modules: where layers sit, what flows between them, how they are cut. Never disk."""
