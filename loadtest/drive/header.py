"""run.json: the protocol of a run, everything a stranger needs to repeat it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import loadtest
from loadtest.drive.prepare import UNNAMED, Prepared
from loadtest.experiment import as_document
from loadtest.record import compared, header_version
from loadtest.servers.control import Arm
from loadtest.servers.file import ServersFile
from loadtest.servers.identity import Identity
from loadtest.servers.nvml import library, read_gpus

LIBRARIES = ("locust", "gevent", "httptools", "orjson", "httpx", "numpy", "scipy", "pandas", "pyarrow", "plotly")
ISOLATED = "An isolated comparison: what speculation makes a server change was pinned alike. It says why, not whether."


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, which may be larger than the memory, as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_header(prepared: Prepared, plan: str, started: datetime, origin_ns: int) -> dict[str, Any]:
    """Return the header of a run that is about to start; `complete_header` adds what the servers say of themselves."""
    options, choice, file = prepared.options, prepared.choice, prepared.file
    candidates = [arm.name for arm in choice.arms if arm.role == "candidate"]
    trace = prepared.experiment.trace.file
    return {
        "schema": header_version(candidates),
        "version": loadtest.__version__,
        "status": "running",
        "reason": "",
        "started": started.astimezone(UTC).isoformat(timespec="milliseconds"),
        "command": options.command,
        "options": _options(prepared),
        "sittings": [],
        "servers_found": prepared.found,
        "scenario": {
            "name": options.scenario.stem,
            "path": str(options.scenario),
            "sha256": sha256_of(options.scenario),
            "prompts": str(options.prompts) if options.prompts else None,
            "prompts_sha256": sha256_of(options.prompts) if options.prompts else None,
            "trace": trace or None,
            "trace_sha256": sha256_of(Path(trace)) if trace else None,
            "sessions_from": prepared.sessions_from,
        },
        "experiment": as_document(prepared.experiment),
        "arms": [],
        "baseline": choice.arms[0].name,
        **compared(candidates),
        "plan_sha256": hashlib.sha256(plan.encode()).hexdigest(),
        "aa": choice.aa,
        "aa_run": prepared.aa_run,
        "starts": prepared.experiment.plan.blocks if choice.restarts else 1,
        "servers_file": _servers_file(file) if file else None,
        "comparability": [],
        "waived": list(options.waive),
        "simulated": {"world": prepared.world, "late_ratio": {}} if prepared.world else None,
        "smoke": options.smoke,
        "measure_only": options.measure_only,
        "calibration": None,
        "habits": None,
        "asking": None,
        "workers": None,
        "notes": [
            *_unverified(choice.arms),
            *_through_proxies(choice.arms),
            *([ISOLATED] if file and file.comparison == "isolated" else []),
        ],
        "clock": {"origin_monotonic_ns": origin_ns, "boot": boot_id()},
        "host": _host(),
    }


def _unverified(arms: Iterable[Arm]) -> list[str]:
    """Return a note on every server whose TLS certificate is not looked at, since a key goes to whoever answers."""
    return [f"The TLS certificate of {arm.name} ({arm.url}) was not verified (insecure = true): who answered is open."
            for arm in arms if arm.insecure and arm.url.startswith("https:")]  # fmt: skip


def _through_proxies(arms: Iterable[Arm]) -> list[str]:
    """Return a note on every proxy: it sees the key, and what is measured is the server behind it and the proxy."""
    return [f"{arm.name} ({arm.url}) is reached through the proxy {arm.proxy}, whose share in the latencies is not told"
            " apart." for arm in arms if arm.proxy]  # fmt: skip


def _options(prepared: Prepared) -> dict[str, Any]:
    """Return what names the same arms again, when the run is gone on with."""
    options = prepared.options
    servers: dict[str, Any] = {"world": prepared.world} if prepared.world else _named_urls(prepared.urls)
    if options.servers is not None:
        words = list(options.speculative_words)
        servers = {"servers": str(options.servers), "baseline": options.baseline,
                   "speculative": words if len(words) > 1 else words[0] if words else None}  # fmt: skip
    return servers | {
        "scenario": str(options.scenario), "prompts": str(options.prompts) if options.prompts else None,
        "arms": options.arms, "measure_only": options.measure_only, "waive": list(options.waive),
        "workers": options.workers, "expect_workers": options.expect_workers, "wait": options.wait,
        "bind": options.bind,
        "assignments": [word for word in options.assignments if word.strip().startswith("servers.")],
        "cwd": str(Path.cwd()),  # from which the paths above are, and the commands that start servers
    }  # fmt: skip


def _named_urls(urls: Mapping[str, str]) -> dict[str, Any]:
    """Return the servers that were named as the options which name them again."""
    candidates = [name for name in urls if name not in UNNAMED]
    own: dict[str, Any] = {name: url for name, url in urls.items() if name in UNNAMED}
    return own | ({"speculative": [f"{name}={urls[name]}" for name in candidates]} if candidates else {})


def boot_id() -> str | None:
    """Return what tells one boot of this machine from another: its monotonic clock starts anew with each."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def complete_header(header: dict[str, Any], arms: Iterable[Arm], identities: Mapping[str, Identity],
                    comparability: list[dict[str, Any]]) -> None:  # fmt: skip
    """Put what is known of the arms into a header; an arm that has not been started yet has no identity."""
    header["arms"] = [_arm(arm, identities.get(arm.name)) for arm in arms]
    header["comparability"] = comparability
    worlds = [identity.simulated_world for identity in identities.values() if identity.simulated_world]
    if worlds and not header["simulated"]:
        header["simulated"] = {"world": worlds[0], "late_ratio": {}}


def _servers_file(file: ServersFile) -> dict[str, Any]:
    return {"path": str(file.path), "sha256": file.sha256, "machine": file.machine, "comparison": file.comparison,
            "contents": file.contents}  # fmt: skip


def _arm(arm: Arm, identity: Identity | None) -> dict[str, Any]:
    speculative = None
    if identity and identity.speculates:
        speculative = {"method": identity.method, "num_speculative_tokens": identity.num_speculative_tokens}
    return {
        "name": arm.name, "role": arm.role, "url": arm.url, "model": identity.model if identity else arm.model,
        "version": identity.version if identity else None, "replicas": arm.replicas, "gpus": arm.gpus,
        "declared": {"method": arm.method, "num_speculative_tokens": arm.k} if arm.method or arm.k else None,
        "identity": asdict(identity) if identity else {}, "speculative": speculative,
    }  # fmt: skip


def _host() -> dict[str, Any]:
    return {
        "platform": platform.platform(), "python": sys.version.split()[0], "cpus": os.cpu_count(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES}, "gpus": gpus_now(),
    }  # fmt: skip


def gpus_now() -> dict[str, Any] | None:
    """Return the GPUs of this machine with their clocks, power and memory; None where NVML is not installed."""
    found = read_gpus(library())
    return asdict(found) if found else None
