"""The commands: a module each. Only here and in cli.py is anything printed, and the process ended.

Libraries that take long to import are imported inside the commands, so that `--help` is quick.
"""
