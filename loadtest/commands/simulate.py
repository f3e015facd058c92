"""`loadtest simulate`."""

from __future__ import annotations

import click


@click.command()
@click.option("--world", default="default", show_default=True, help="World to simulate.")
@click.option("--arm", type=click.Choice(["baseline", "speculative", "both"]), default="both", show_default=True)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; the pair takes two."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--list", "list_worlds", is_flag=True, help="List the worlds and end.")
def simulate(world: str, arm: str, port: int, seed: int, list_worlds: bool) -> None:
    """Run the built-in simulated servers alone, until Ctrl-C."""
    from loadtest.servers.process import serve_simulated
    from loadtest.simulate.worlds import WORLDS

    if list_worlds:
        for name, described in WORLDS.items():
            click.echo(f"{name:18s} {described.description}")
        return
    arms = ["baseline", "speculative"] if arm == "both" else [arm]
    serve_simulated(world, {name: port + offset if port else 0 for offset, name in enumerate(arms)}, seed, click.echo)
