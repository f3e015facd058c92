"""Lies here so that pytest puts this folder on the path: `compose_files` is for the unit and the end-to-end tests."""
