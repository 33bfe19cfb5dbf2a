"""The process that serves the API: `python -m services.api`."""
