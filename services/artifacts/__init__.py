"""Results: where their bytes lie, what they hold, how they are fetched."""
