"""How many values of an open load count as one: there blocks differ most where the load is high, and little elsewhere.

In a closed load the number of users is the same in every block, and one design effect serves all levels. In an open
load the requests in flight wander, the more so the nearer the server is to its limit, and with them every percentile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from loadtest.analyse.stats import CONFIDENCE, Sample, dispersion, merged, pooled_variances


def by_level(blocks: Mapping[float, Sequence[Sample]], q: float, confidence: float = CONFIDENCE) -> dict[float, float]:
    """Return the design effect of a q-quantile at each level; none where no level has two blocks that tell of it.

    Each level's dispersion is smoothed over the load as variances are, so that a level that tells nothing by itself
    takes the others', and raised by what Student's t is wider than a normal interval of this confidence, since few
    blocks know little of how much they differ.
    """
    levels = sorted(blocks)
    found = [dispersion(blocks[x], merged(blocks[x]).quantile(q)) if blocks[x] else (0.0, 0) for x in levels]
    dof = np.array([d for _, d in found])
    if not dof.any():
        return {}
    own = np.array([chi_square / d if d else 0.0 for chi_square, d in found])
    effect, worth = pooled_variances(np.array(levels), own, dof)
    upper = (1 + confidence) / 2
    wider = np.asarray(stats.t.ppf(upper, np.maximum(worth, 1.0)) / stats.norm.ppf(upper)) ** 2
    return {x: float(max(1.0, e * w)) for x, e, w in zip(levels, effect, wider, strict=True) if np.isfinite(e)}
