"""How many values count as one: blocks differ by more than independent values would, and few blocks tell it poorly.

In a closed load the number of users is the same in every block, and one design effect serves all levels. In an open
load the requests in flight wander, the more so the nearer the server is to its limit, and with them every percentile:
there each level has its own. Where each block was a start of the servers, its levels share that start's luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from loadtest.analyse.stats import CONFIDENCE, Sample, dispersion, pooled_variances

Blocks = Mapping[float, Sequence[Sample]]  # by level


def inflated(effect: float, worth: float, confidence: float = CONFIDENCE) -> float:
    """Return a design effect for intervals, at least 1: raised by what Student's t is wider than a normal interval.

    `worth`: the degrees of freedom that it was estimated from.
    """
    upper = (1 + confidence) / 2
    wider = float(stats.t.ppf(upper, max(worth, 1.0)) / stats.norm.ppf(upper)) ** 2
    return max(1.0, effect * wider)


def quantile_effects(
    blocks: Blocks, pooled: Mapping[float, Sample], q: float, *, varying: bool = False, restarted: bool = False,
    confidence: float = CONFIDENCE,
) -> dict[float, float]:  # fmt: skip
    """Return the design effect of a q-quantile at each level; none where no level has two blocks that tell of it.

    `pooled`: each level's blocks as one sample. `varying`: levels differ in it, as in an open load; each level's
    dispersion is then smoothed over the load as variances are, so that a level that tells nothing by itself takes the
    others'. `restarted`: each block was a start of the servers of its own.
    """
    levels = sorted(x for x in blocks if pooled[x].size)
    found = [dispersion(blocks[x], pooled[x].quantile(q)) for x in levels]
    dof = np.array([d for _, d in found])
    if not dof.any():
        return {}
    if varying:
        own = np.array([chi_square / d if d else 0.0 for chi_square, d in found])
        effect, worth = pooled_variances(np.array(levels), own, dof)
    else:
        effect = np.full(len(levels), sum(chi_square for chi_square, _ in found) / dof.sum())
        worth = np.full(len(levels), float(dof.sum()))
    if restarted:
        worth = np.minimum(worth, dof.max())
    known = zip(levels, effect, worth, strict=True)
    return {x: inflated(float(e), float(w), confidence) for x, e, w in known if np.isfinite(e)}
