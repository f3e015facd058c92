"""The client held against a server's own log, on literal stamps."""

import json

import pyarrow as pa

from loadtest.drive.truth import agreement, calibration_result
from loadtest.record import STREAM_SCHEMA, Request
from loadtest.record_writer import RequestWriter, batch_of

ORIGIN_NS = 50_000_000_000  # the run began at 50 s of the server's clock


def _table(*rows: Request) -> pa.Table:
    return pa.Table.from_batches([batch_of(list(rows))], schema=STREAM_SCHEMA)


def _ok(response_id: str, first_s: float, last_s: float, tokens: list[int]) -> Request:
    return Request(response_id=response_id, outcome="ok", due_s=1.0, end_s=last_s, output_tokens=sum(tokens),
                   chunk_s=[first_s, last_s], chunk_tokens=tokens)  # fmt: skip


def _log(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_errors_and_token_counts_request_by_request(tmp_path):
    log = _log(
        tmp_path / "truth.jsonl",
        {"id": "a", "sent_s": [51.0, 52.0], "chunk_tokens": [1, 2], "output_tokens": 3},
        {"id": "b", "sent_s": [51.0, 52.0], "chunk_tokens": [1, 4], "output_tokens": 5},
    )
    table = _table(
        _ok("a", 1.001, 2.002, [1, 2]),
        _ok("b", 1.003, 2.0, [1, 3]),  # a token is missing
        _ok("c", 1.0, 2.0, [1, 1]),  # the server knows nothing of it
        Request(response_id="d", outcome="truncated"),
    )
    found = agreement(table, log, ORIGIN_NS)
    assert (found.requests, found.missing, found.tokens_differ) == (2, 1, 1)
    assert round(found.first_error_p50_s, 9) == 0.001
    assert round(found.first_error_p99_s, 9) == 0.003
    assert round(found.last_error_p99_s, 9) == 0.002


def test_a_calibration_that_was_stopped_before_its_first_request_says_nothing(tmp_path):
    RequestWriter(tmp_path / "calibration.arrows").close()
    event = {"event": "calibration_end", "users": 3, "window_open_s": None, "window_close_s": None}
    result = calibration_result(tmp_path, event, tmp_path / "none.jsonl", ORIGIN_NS)
    assert result["requests"] == 0
    assert result["first_error_p99_s"] is None
    assert result["chunks_per_s"] is None
    assert result["users"] == 3
