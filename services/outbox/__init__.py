"""From the outbox to the workers: relay and sweeper, `python -m services.outbox`."""
