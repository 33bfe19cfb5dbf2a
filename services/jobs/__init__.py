"""Jobs: their states, their rows, what the API shows of them."""
