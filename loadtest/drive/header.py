"""run.json: the protocol of a run, everything a stranger needs to repeat it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import loadtest
from loadtest.drive.prepare import Prepared
from loadtest.experiment import as_document
from loadtest.record import SCHEMA_VERSION
from loadtest.servers.control import Arm
from loadtest.servers.identity import Identity

LIBRARIES = ("locust", "gevent", "httptools", "orjson", "httpx", "numpy", "scipy", "pandas", "pyarrow", "plotly")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_header(prepared: Prepared, arms: Sequence[Arm], identities: Mapping[str, Identity], plan: str,
                comparability: list[dict[str, Any]], started: datetime, origin_ns: int) -> dict[str, Any]:  # fmt: skip
    """Return the header of a run that is about to start."""
    options = prepared.options
    candidate = next((arm.name for arm in arms if arm.role == "candidate"), None)
    return {
        "schema": SCHEMA_VERSION,
        "version": loadtest.__version__,
        "status": "running",
        "reason": "",
        "started": started.astimezone(UTC).isoformat(timespec="milliseconds"),
        "command": options.command,
        "servers_found": prepared.found,
        "scenario": {
            "name": options.scenario.stem,
            "path": str(options.scenario),
            "sha256": sha256_of(options.scenario),
            "prompts": str(options.prompts) if options.prompts else None,
            "prompts_sha256": sha256_of(options.prompts) if options.prompts else None,
        },
        "experiment": as_document(prepared.experiment),
        "plan_sha256": hashlib.sha256(plan.encode()).hexdigest(),
        "arms": [_arm(arm, identities[arm.name]) for arm in arms],
        "baseline": arms[0].name,
        "candidate": candidate,
        "comparability": comparability,
        "waived": list(options.waive),
        "simulated": {"world": prepared.world, "late_ratio": {}} if prepared.world else None,
        "smoke": options.smoke,
        "measure_only": options.measure_only,
        "calibration": None,
        "notes": [],
        "clock": {"origin_monotonic_ns": origin_ns},
        "host": _host(),
    }


def _arm(arm: Arm, identity: Identity) -> dict[str, Any]:
    data = asdict(identity)
    speculative = {"method": identity.method, "num_speculative_tokens": identity.num_speculative_tokens}
    return {
        "name": arm.name, "role": arm.role, "url": arm.url, "model": identity.model, "version": identity.version,
        "identity": data, "speculative": speculative if identity.speculates else None,
    }  # fmt: skip


def _host() -> dict[str, Any]:
    return {
        "platform": platform.platform(), "python": sys.version.split()[0], "cpus": os.cpu_count(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }  # fmt: skip
