"""A model of an LLM server with and without speculation, in virtual and in real time."""
