"""Counters, read from a real vLLM's exposition."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.servers.counters import MOST_SERIES, family_names, is_idle, parse_exposition

DATA = Path(__file__).parents[2] / "data" / "metrics"


def test_the_figures_of_a_real_exposition():
    values, positions = parse_exposition((DATA / "vllm-0.32-ngram-after.txt").read_text())
    assert values["vllm:spec_decode_num_drafts_total"] == 327
    assert values["vllm:spec_decode_num_draft_tokens_total"] == 1260
    assert values["vllm:spec_decode_num_accepted_tokens_total"] == 585
    assert positions == [211, 178, 123, 73]
    assert sum(positions) == 585
    assert values["vllm:generation_tokens_total"] == 1152
    assert values["vllm:request_success_total"] == 18
    assert values["vllm:inter_token_latency_seconds_count"] == 570
    assert values["vllm:inter_token_latency_seconds_sum"] == 10.744897542997023
    assert values["vllm:kv_cache_usage_perc"] == 0
    assert "vllm:cache_config_info" not in values
    assert is_idle(values) is True


def test_labels_are_summed_shares_averaged_and_twins_left_out():
    text = """# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 5.0
vllm:generation_tokens_total{engine="1",model_name="m"} 7.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:kv_cache_usage_perc{engine="0"} 0.2
vllm:kv_cache_usage_perc{engine="1"} 0.4
vllm:num_requests_running{engine="0"} 1
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 2
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 3
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 4
vllm:weird_total NaN
python_info{version="3"} 1.0
"""
    values, positions = parse_exposition(text)
    assert values["vllm:generation_tokens_total"] == 12
    assert round(values["vllm:kv_cache_usage_perc"], 9) == 0.3
    assert positions == [7, 2]
    assert set(values) == {
        "vllm:generation_tokens_total",
        "vllm:kv_cache_usage_perc",
        "vllm:num_requests_running",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    }
    assert is_idle(values) is False


def test_figures_that_are_no_counts_are_not_told():
    text = """vllm:generation_tokens_total{engine="0"} 1.7e308
vllm:generation_tokens_total{engine="1"} 1.7e308
vllm:prompt_tokens_total{engine="0"} +Inf
vllm:prompt_tokens_total{engine="1"} -Inf
vllm:num_requests_running 3
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 1.7e308
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 1.7e308
"""
    assert parse_exposition(text) == ({"vllm:num_requests_running": 3}, [])


def test_a_label_that_names_no_slot_costs_the_slots_alone():
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    told = "vllm:num_requests_running 3\n" + "".join(f'{name}{{position="{at}"}} {9 - at}\n' for at in range(3))
    assert parse_exposition(told)[1] == [9, 8, 7]
    for odd in ("zero", "-1", "1.0", "", "9" * 5000, "4"):  # slots that are not all told are not those that they seem
        values, accepted = parse_exposition(told.replace('position="1"', f'position="{odd}"'))
        assert (values["vllm:num_requests_running"], accepted) == (3, [])


def test_a_label_may_hold_any_character_but_a_line_break():
    text = 'vllm:num_requests_running{model_name="a\u2028b\x0cc"} 3\r\nvllm:num_requests_waiting 0\r\n'
    assert parse_exposition(text)[0] == {"vllm:num_requests_running": 3, "vllm:num_requests_waiting": 0}
    assert family_names(text) == {"vllm:num_requests_running", "vllm:num_requests_waiting"}


def test_more_series_than_a_server_has_are_not_read():
    text = "".join(f'vllm:num_requests_running{{engine="{at}"}} 1\n' for at in range(MOST_SERIES + 1))
    with pytest.raises(ValueError, match=r"^20,001 series of known counters, of which at most 20,000 are read$"):
        parse_exposition(text)


@pytest.mark.parametrize(
    "line", ["vllm:a{", "vllm:a}", 'vllm:a{b="c} 1', "vllm:a x", "vllm:a{=} 1", "vllm:a 1 2 3 4 {"]
)
def test_a_text_that_is_no_exposition_is_a_value_error_or_nothing(line):
    with contextlib.suppress(ValueError):
        parse_exposition(line)


@given(st.lists(st.text(alphabet='{}="\\,# 01eE.+-xNa\t', max_size=30), max_size=3))
def test_no_exposition_raises_anything_else(lines):
    with contextlib.suppress(ValueError):
        parse_exposition("\n".join("vllm:" + line for line in lines))


def test_a_text_without_our_families_says_nothing():
    assert parse_exposition("") == ({}, [])
    assert parse_exposition("<html>not metrics</html>") == ({}, [])
    assert is_idle({}) is None
