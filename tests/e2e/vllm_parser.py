"""Runs under the python of a vLLM environment: JSON commands on standard input, what vLLM makes of each on output.

A command is {"words": [what follows `vllm serve`], "variables": [names of environment variables]}. No model is loaded
and none is looked for. Each answer is {"error": null or a sentence, "model": …, "speculative": {…}}.
"""

import argparse
import json
import sys

from vllm import envs
from vllm.config import SpeculativeConfig

try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:  # before 0.31
    from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils import FlexibleArgumentParser


class Written(SpeculativeConfig):
    """The speculative configuration as written: keys, types and ranges are checked, no drafter is looked for."""

    def __post_init__(self):
        """Leave out what needs the target and the drafter on disk."""


class Parser(FlexibleArgumentParser):
    """Raises where argparse would end the program."""

    def error(self, message):
        """Raise instead of exiting."""
        raise ValueError(message)


def answer(parser: argparse.ArgumentParser, command: dict) -> dict:
    """Return what vLLM makes of one command."""
    try:
        given = parser.parse_args(command["words"])
        validate_parsed_serve_args(given)
        written = given.speculative_config
        if written is not None:
            Written(**written)
        unknown = [n for n in command["variables"] if n.startswith("VLLM_") and n not in envs.environment_variables]
        if unknown:
            raise ValueError(f"vLLM knows no variable {', '.join(unknown)}")
    except (ValueError, TypeError) as error:
        return {"error": str(error), "model": None, "speculative": None}
    return {"error": None, "model": given.model_tag or given.model, "speculative": written}


def main() -> None:
    """Answer every command."""
    parser = make_arg_parser(Parser())
    json.dump([answer(parser, command) for command in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
