"""Takes jobs off the queue and runs each in a process of its own."""
