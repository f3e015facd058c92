"""The stream client held against a server that writes down what it truly did: `python -m benchmarks.client`."""
