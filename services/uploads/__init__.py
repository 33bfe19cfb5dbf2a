"""Texts that users bring: to the object store directly, then checked, then named by jobs."""
