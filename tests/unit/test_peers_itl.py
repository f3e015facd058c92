"""The formulas of benchmarks/peers_itl.py on one answer whose figures can be worked out by hand."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "peers_itl.py"
SPEC = importlib.util.spec_from_file_location("peers_itl", PATH)
peers = importlib.util.module_from_spec(SPEC)
sys.modules["peers_itl"] = peers  # a dataclass looks itself up there
SPEC.loader.exec_module(peers)

ONE = peers.Stream(sent_s=0.0, end_s=1.5, chunk_s=np.array([1.0, 1.2, 1.4]), tokens=np.array([2, 3, 1]))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (peers.per_chunk, [0.2, 0.2]),
        (peers.per_request, [0.4 / 5]),
        (peers.burst, [0, 0.2, 0, 0, 0.2]),
        (peers.spread_out, [0.2 / 3, 0.2 / 3, 0.2 / 3, 0.2]),
        (peers.with_first, [1.4 / 3]),
        (peers.whole_answer, [1.4 / 6]),
        (peers.to_the_end, [0.5 / 5]),
        (peers.by_all_tokens, [0.5 / 6]),
        (peers.exact, [0.4 / 4]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_definition(values, expected):
    assert values(ONE) == pytest.approx(expected)


def test_every_definition_is_in_the_table_of_a_run():
    folder = Path(__file__).parents[1] / "data" / "golden" / "good"
    lines = peers.table(folder, 4.0, "baseline", "speculative")
    assert len(lines) == 4 + len(peers.DEFINITIONS)
    assert lines[0].startswith("4 users: 144 answers of baseline, 144 of speculative;")


def test_percentiles_are_nearest_ranks_in_milliseconds():
    assert peers.figures([np.arange(1, 101) / 1000]) == pytest.approx((50.5, 50, 99))
