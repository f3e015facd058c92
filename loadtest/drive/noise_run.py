"""The A/A run that a run names: what it measured of the noise goes into the header, so that the run stands alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtest.errors import UsageError
from loadtest.experiment import as_document
from loadtest.reading import parsed, read_text
from loadtest.run_folder import read_run
from loadtest.settings import Experiment

ALIKE = ("load", "window", "plan", "generation")  # sections whose settings decide how large the noise is
FREE = {("plan", "seed"), ("plan", "stages"), ("plan", "coarse_blocks")}  # and settings in them that do not


def read_noise_run(folder: Path, experiment: Experiment) -> dict[str, Any]:
    """Return what `aa_run` of a header holds: path, SHA-256 of run.json, noise, and the settings that differ.

    Raises UsageError for a folder that is no run of a server against itself, is not complete, or was not judged.
    """
    run = read_run(folder)
    if not run.get("aa"):
        raise UsageError(f"--aa {folder} is no A/A run: make one with --arms baseline,baseline.")
    if run.get("status") != "complete":
        raise UsageError(f"--aa {folder} is not complete (status: {run.get('status')}); name one that is.")
    kind = (run["experiment"].get("load") or {}).get("kind", "closed")
    if kind != experiment.load.kind:
        raise UsageError(f"--aa {folder} is of {_article(kind)} load, and this run of {_article(experiment.load.kind)}"
                         " one: noise at so many users says nothing of noise at so many requests/s.")  # fmt: skip
    noise = _noise(folder)
    text = (folder / "run.json").read_bytes()
    return {
        "path": str(folder),
        "sha256": hashlib.sha256(text).hexdigest(),
        "noise": noise,
        "differs": _differing(run["experiment"], json.loads(json.dumps(as_document(experiment)))),
    }


def _article(kind: str) -> str:
    return f"{'an' if kind == 'open' else 'a'} {kind}"


def _noise(folder: Path) -> dict[str, Any]:
    path, again = folder / "verdict.json", f"Judge it with `loadtest report {folder}`, then name it again."
    if not path.is_file():
        raise UsageError(f"--aa {folder} holds no verdict.json. {again}")
    verdict = parsed(read_text(path), str(path))
    decision, findings = verdict.get("decision"), verdict.get("findings")
    if isinstance(decision, Mapping) and decision.get("answer") == "invalid":
        raise UsageError(f"--aa {folder} is an invalid run: {decision.get('headline', '')}")
    noise = findings.get("noise") if isinstance(findings, Mapping) else None
    if not isinstance(noise, Mapping) or not all(
        _is_numbers(noise.get(name)) for name in ("effects", "slower", "median")
    ):
        raise UsageError(f"{path} says nothing of the noise: an older version wrote it. {again}")
    return dict(noise)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        item is None or (isinstance(item, int | float) and not isinstance(item, bool)) for item in value.values()
    )


def _differing(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return the settings, as section.key, that differ between the A/A run and this one."""
    return [
        f"{section}.{key}"
        for section in ALIKE
        for key in sorted({*theirs.get(section, {}), *ours.get(section, {})})
        if (section, key) not in FREE and theirs.get(section, {}).get(key) != ours.get(section, {}).get(key)
    ]
