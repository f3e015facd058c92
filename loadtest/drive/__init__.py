"""Makes the load."""
