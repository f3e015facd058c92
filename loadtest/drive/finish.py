"""The end of a run: its header completed, its requests in their final form, what only the way there needed removed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from loadtest.drive.header import gpus_now
from loadtest.drive.prepare import Prepared
from loadtest.drive.resume import Resumed
from loadtest.drive.truth import NULL, agreement
from loadtest.drive.turns import Managed
from loadtest.json_files import write_json
from loadtest.record import GIVEN_UP
from loadtest.run_folder import finish_requests, read_requests


def how_it_ended(last: dict[str, Any], managed: Managed, *, stopped: bool, given_up: str) -> dict[str, Any]:
    """Return the driver's last word with what it does not know: a stop, a certain failure, a server that has gone.

    `given_up`: why the run was ended early, empty where it was not.
    """
    if stopped:
        return last | {"state": "interrupted", "reason": "stopped by the user"}
    if given_up:
        return last | {"state": GIVEN_UP, "reason": given_up}
    if last["state"] == "aborted":
        return last | {"reason": f"{last['reason']} {managed.lost()}".rstrip()}
    if managed.gone:
        return last | {"state": "aborted", "kind": "run", "reason": managed.gone}
    return last


def note_end(header: dict[str, Any], last: Mapping[str, Any]) -> None:
    """Note in a header when and how this sitting of the run ended; `last` is the driver's last word."""
    header["ended"] = datetime.now(UTC).isoformat(timespec="milliseconds")
    header["sittings"][-1] |= {"state": last["state"], "ended": header["ended"], "gpus": gpus_now()}
    if not header.get("look"):  # a run that was judged once stays so until its next look
        header["status"], header["reason"] = last["state"], last.get("reason", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What is known of a run when its last cell has ended."""

    folder: Path
    prepared: Prepared
    resumed: Resumed | None
    arms: tuple[str, ...]
    planned: frozenset[int]  # cells
    late: Mapping[str, float | None]  # arm → share of its steps that were late, where it is simulated
    origin_ns: int

    def finish(self, header: dict[str, Any]) -> None:
        """Complete run.json and turn the stream of requests into its final form."""
        if header["simulated"]:
            header["simulated"]["late_ratio"] = self._late_ratios(header["simulated"]["late_ratio"])
        if self.prepared.world:
            header["simulated"]["truth"] = self._truth()
        write_json(self.folder / "run.json", header)
        finish_requests(self.folder)
        for name in ("job.json", f"server-{NULL}.log", f"truth-{NULL}.jsonl"):
            (self.folder / name).unlink(missing_ok=True)

    def _late_ratios(self, before: Mapping[str, float | None]) -> dict[str, float | None]:
        """Return the larger of each arm's share of late steps now and before; without a cell now, that before."""
        if self.resumed and self.planned <= self.resumed.whole:
            return dict(before)
        return {
            arm: max((x for x in (ratio, before.get(arm)) if x is not None), default=None)
            for arm, ratio in self.late.items()
        }

    def _truth(self) -> dict[str, Any]:
        """Return how the records of simulated arms agree with the servers' own logs."""
        requests = read_requests(self.folder)
        if self.resumed:
            requests = requests.filter(pc.invert(_of_cells(requests, self.resumed.whole)))
        truth: dict[str, Any] = {}
        for arm in self.arms:
            own = requests.filter([value == arm for value in requests.column("arm").to_pylist()])
            truth[arm] = asdict(agreement(own, self.folder / f"truth-{arm}.jsonl", self.origin_ns))
        return truth


def _of_cells(requests: pa.Table, cells: Collection[int]) -> pa.ChunkedArray:
    return pc.is_in(requests.column("cell"), pa.array(sorted(cells), pa.int32()))
