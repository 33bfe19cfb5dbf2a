"""The API process, and the persistence that the worker shares with it."""
