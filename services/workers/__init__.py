"""The workers: which there are, what they can hold, and which jobs none of them can take."""
