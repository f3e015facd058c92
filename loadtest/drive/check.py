"""`check`: bring both servers up, ask them what they are and send a handful of requests; no load is made."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadtest.drive.pair import comparability, idle_waivers
from loadtest.drive.preflight import agreed
from loadtest.drive.prepare import Prepared
from loadtest.drive.rate_limits import refuse_above_limits, token_notes
from loadtest.drive.turns import Managed
from loadtest.errors import ExitCode
from loadtest.servers.comparison import SPECULATION
from loadtest.servers.control import Arm
from loadtest.servers.identity import Identity
from loadtest.servers.kinds import KINDS
from loadtest.servers.managed import StartFailed
from loadtest.servers.process import start_simulated

Tell = Callable[[dict[str, Any]], None]
REPEATS = "its drafter learns from earlier requests: repeats and warm-up raise its acceptance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check found."""

    rows: tuple[dict[str, Any], ...]  # the comparability table; empty for one server alone
    servers: tuple[str, ...]  # a sentence on each
    exit_code: int


def check(prepared: Prepared, tell: Tell) -> Checked:
    """Introduce the arms and compare them. Raises UsageError where one does not answer or the plan cannot be asked."""
    folder = Path(tempfile.mkdtemp(prefix="loadtest-check-"))
    try:
        with ExitStack() as stack:
            met = _meet_all(prepared, folder, stack, tell)
    except StartFailed:
        raise  # it names a log, which stays
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    arms, identities = [arm for arm, _ in met], {arm.name: identity for arm, identity in met}
    agreed(arms, identities, prepared.experiment.generation)
    refuse_above_limits(arms, identities, prepared.experiment.load)
    rows = []
    for other in arms[1:]:
        own = comparability((arms[0], other), identities, prepared.options.waive, aa=prepared.choice.aa)
        rows += [row | {"arm": other.name} for row in own] if len(arms) > 2 else own
    said = (
        [described(*each) for each in met]
        + idle_waivers(rows, prepared.options.waive)
        + token_notes(arms, identities, prepared.experiment)
    )
    return Checked(rows=tuple(rows), servers=tuple(said), exit_code=int(exit_code(rows)))


def _meet_all(prepared: Prepared, folder: Path, stack: ExitStack, tell: Tell) -> list[tuple[Arm, Identity]]:
    """Introduce every arm, started one at a time where only one can run."""
    managed = Managed(prepared.choice.starts, folder, tell)
    stack.enter_context(managed.over(prepared.arms))
    met = []
    for arm in prepared.arms:
        if prepared.world:
            process = start_simulated(str(prepared.world), prepared.choice.origins[arm.name], folder,
                                      seed=prepared.experiment.plan.seed, name=arm.name)  # fmt: skip
            stack.callback(process.stop)
            arm = replace(arm, url=f"http://127.0.0.1:{process.announced['port']}")
        elif arm.name in prepared.choice.starts:
            if prepared.choice.restarts:
                managed.stop()
            managed.start(arm, 1, 1)
        met.append(managed.meet(arm, prepared.experiment.generation, answers=True))
    return met


def exit_code(rows: Sequence[dict[str, Any]]) -> ExitCode:
    """Return INVALID for a violation, INCONCLUSIVE where it is open whether just one arm speculates, else PASS."""
    if any(row["kind"] == "violation" and not row.get("waived") for row in rows):
        return ExitCode.INVALID
    open_ = any(row["item"] == SPECULATION and row["kind"] == "unknown" for row in rows)
    return ExitCode.INCONCLUSIVE if open_ else ExitCode.PASS


def described(arm: Arm, identity: Identity) -> str:
    """Return a sentence on what a server is, and how it was asked."""
    kind = KINDS[identity.kind]
    version = f" {identity.version}" if identity.version else ""
    parts = [f"{arm.name}: {kind.title}{version} at {arm.url}, model {identity.model}"]
    if identity.tried:
        refused = f"not taken: {', '.join(identity.refused)}" if identity.refused else "all are taken"
        parts.append(f"{identity.tried} small requests tried the optional fields ({refused})")
    if identity.at_once:
        parts.append("its streams come in one piece, so that times to first token and per token cannot be had")
    if identity.remembers:
        parts.append(REPEATS)
    return "; ".join(parts) + "."
