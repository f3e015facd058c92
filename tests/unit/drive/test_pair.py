"""A later start of an arm has to be the server that its first start was."""

from dataclasses import replace

import pytest

from loadtest.drive.pair import idle_waivers, refuse_another, refuse_violations
from loadtest.errors import NotComparable
from loadtest.servers.identity import Identity

FIRST = Identity(
    kind="vllm", model="m", model_root="org/m", max_model_len=4096, version="0.33.0", probe_tokens=30, speculates=True,
    method="ngram", num_speculative_tokens=4,
    config={"speculative_config.method": "ngram", "cache_config.num_gpu_blocks": 9000,
            "scheduler_config.max_num_seqs": 8},
)  # fmt: skip


@pytest.mark.parametrize(
    "now",
    [
        FIRST,
        replace(FIRST, config=FIRST.config | {"cache_config.num_gpu_blocks": 8990}),
        replace(FIRST, config=FIRST.config | {"instance_id": "another"}),
        replace(FIRST, config={}),
    ],
)
def test_what_varies_between_starts_is_accepted(now):
    refuse_another("draft", 2, FIRST, now)


def test_a_waiver_that_names_nothing_is_told():
    rows = [{"item": "context length", "baseline": "4096", "candidate": "2048", "kind": "violation"}]
    with pytest.raises(NotComparable) as refused:
        refuse_violations(rows, ("contxt length",))
    assert str(refused.value).endswith(
        "--waive 'contxt length' names no item that differs. Did you mean `context length`?"
    )
    assert idle_waivers(rows, ("context length",)) == []


def test_very_many_violations_are_counted():
    rows = [{"item": f"s{at}", "baseline": "1", "candidate": "2", "kind": "violation"} for at in range(1030)]
    with pytest.raises(NotComparable) as refused:
        refuse_violations(rows)
    assert "\n  s29: baseline 1, candidate 2\n  and 1,000 more\nStart" in str(refused.value)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (replace(FIRST, version="0.34.0"), "version: 0.33.0 at first, now 0.34.0"),
        (replace(FIRST, speculates=False), "speculation: on (ngram, k = 4) at first, now off"),
        (
            replace(FIRST, config=FIRST.config | {"speculative_config.method": "suffix"}),
            "speculative_config.method: ngram at first, now suffix",
        ),
        (
            replace(FIRST, config=FIRST.config | {"scheduler_config.max_num_seqs": 16}),
            "max_num_seqs: 8 at first, now 16",
        ),
    ],
)
def test_another_server_is_refused_by_what_differs(now, words):
    with pytest.raises(NotComparable) as refused:
        refuse_another("draft", 3, FIRST, now)
    assert str(refused.value).startswith("Start 3 of draft is not the server that start 1 was:")
    assert words in str(refused.value)
