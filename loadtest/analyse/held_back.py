"""Streams that something between passed on in one piece: their chunks tell when they were passed on, nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

FEW_CHUNKS = 8  # an answer with fewer may well come in one read
SAME_READ_RATIO = 0.9  # of an answer's chunks after the first that shared a read with an earlier one
SPREAD_RATIO = 0.05  # between first and last chunk, as a share of the end-to-end time
ARM_RATIO = 0.9  # of an arm's longer answers: then it is how its streams come, and no accident
ABSENT = ("ttft_s", "ttft_visible_s", "tpot_s", "worst_stall_s", "least_gap_s", "on_time")


def mask_held_back(frame: pd.DataFrame, coalesced: NDArray[np.int64]) -> None:
    """Add the column `at_once`, and take every time within a stream from arms whose streams come in one piece.

    `coalesced` is how many chunks of each request shared a read with an earlier one.
    """
    chunks, spread = frame["chunks"].to_numpy(), (frame["e2e_s"] - frame["ttft_s"]).to_numpy()
    told = frame["ok"].to_numpy() & (chunks >= FEW_CHUNKS)
    with np.errstate(invalid="ignore"):
        at_once = told & (coalesced >= SAME_READ_RATIO * (chunks - 1)) & (spread < SPREAD_RATIO * frame["e2e_s"])
    held = np.zeros(len(frame), dtype=bool)
    if at_once.any():
        names = frame["arm"].astype(str).to_numpy()
        for arm in set(names[at_once]):
            own = names == arm
            if at_once[own].sum() >= ARM_RATIO * told[own].sum():
                held |= own
    frame["at_once"] = held
    if held.any():
        frame.loc[held, list(ABSENT)] = np.nan
