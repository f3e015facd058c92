"""Where the scenarios, servers files and compose files that come with loadtest are."""

from __future__ import annotations

from pathlib import Path

from loadtest.errors import UsageError


def packaged() -> Path:
    """Return their folder, in the installed package or beside it in a checkout; UsageError where they are gone."""
    package = Path(__file__).resolve().parent
    packed = package / "starter"
    source = packed if packed.is_dir() else package.parent
    if not (source / "scenarios" / "chat.py").is_file():
        raise UsageError(f"The scenarios that come with loadtest are missing in {packed}: install it from its wheel or"
                         " sdist.")  # fmt: skip
    return source
