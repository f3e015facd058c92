"""TLS: verified unless told otherwise, never left out, and measured by the same stamps."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.record import Request

pytestmark = pytest.mark.usefixtures("stamps")

TLS = Path(__file__).parents[1] / "data" / "tls"
CA = TLS / "ca.pem"


def context(certificate: str) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(TLS / certificate, TLS / "server.key")
    return made


def stream(client: Any) -> Request:
    record = Request(due_s=0.0)
    client.stream("/v1/chat/completions", b"{}", record)
    return record


def test_a_stream_over_tls_is_measured_like_any_other(serve: Any, connect: Any, say: Any, stamps: str) -> None:
    steps = [say.HEAD + say.chunk(say.role()), 0.1, say.chunk(say.token(1)), 0.1, say.chunk(say.token(2, "", "stop"))]
    again = [say.READ, *steps, say.chunk(say.DONE), say.END]
    server = serve([*again, *again, say.HOLD], tls=context("localhost.pem"))
    client = connect(server.url, ca=CA)
    for _ in range(2):
        record = stream(client)
        assert (record.outcome, record.error, list(record.chunk_tokens)) == ("ok", "", [1, 1])
        assert record.chunk_s[1] - record.chunk_s[0] == pytest.approx(0.1, abs=0.03)
        assert record.stamp_source == stamps
    assert server.connections == 1


def test_large_records_and_large_requests_pass(serve: Any, connect: Any, say: Any) -> None:
    long = say.token(1, "a" * 300_000)
    answer = say.HEAD + say.chunk(long + say.token(2, "", "stop") + say.DONE) + say.END
    server = serve([0.1, say.READ, answer, say.HOLD], tls=context("localhost.pem"))
    record = Request()
    connect(server.url, ca=CA).stream("/v1/x", b'"' + b"b" * 3_000_000 + b'"', record)
    assert (record.outcome, list(record.chunk_tokens)) == ("ok", [1, 1])
    assert server.requests[0].endswith(b'bbb"')


@pytest.mark.parametrize(
    ("certificate", "ca", "reason"),
    [
        ("localhost.pem", None, "unable to get local issuer certificate"),
        ("expired.pem", CA, "certificate has expired"),
        ("elsewhere.pem", CA, "IP address mismatch"),
    ],
)
def test_a_certificate_that_does_not_hold_is_refused(
    serve: Any, connect: Any, say: Any, certificate: str, ca: Path | None, reason: str
) -> None:
    server = serve([say.READ, say.good()], tls=context(certificate))
    record = stream(connect(server.url, ca=ca))
    assert record.outcome == "tls_error"
    assert f"the certificate of 127.0.0.1:{server.port} was refused: " in record.error
    assert reason in record.error
    assert server.requests == []
    assert stream(connect(server.url, verify=False)).outcome == "ok"


def test_plain_http_on_an_https_url_is_named(serve: Any, connect: Any, say: Any) -> None:
    server = serve([0.05, b"HTTP/1.1 400 Bad Request\r\n\r\n", say.HOLD])
    record = stream(connect(server.url.replace("http://", "https://")))
    assert record.outcome == "tls_error"
    assert record.error == f"127.0.0.1:{server.port} does not speak TLS: is its URL http://?"


def test_https_on_an_http_url_is_named(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.good()], tls=context("localhost.pem"))
    record = stream(connect(server.url.replace("https://", "http://")))
    assert record.outcome in ("protocol_error", "truncated")
    assert server.requests == []


@pytest.mark.parametrize(
    ("end", "outcome"), [("HOLD", "connect_error"), ("CLOSE", "tls_error"), ("RESET", "tls_error")]
)
def test_a_handshake_that_does_not_happen(serve: Any, connect: Any, say: Any, end: str, outcome: str) -> None:
    server = serve([0.05, getattr(say, end)])
    record = stream(connect(server.url.replace("http://", "https://"), connect_s=0.3))
    assert record.outcome == outcome
    assert "TLS" in record.error
    assert record.end_s < 1.5


def test_an_end_within_a_stream_keeps_what_came(serve: Any, connect: Any, say: Any) -> None:
    server = serve([say.READ, say.HEAD + say.chunk(say.tokens(3)), 0.05, say.CLOSE], tls=context("localhost.pem"))
    record = stream(connect(server.url, ca=CA))
    assert (record.outcome, record.error) == ("truncated", "the server closed the connection after 3 chunks")
    assert list(record.chunk_tokens) == [1, 1, 1]


def test_a_ca_file_that_is_none_is_a_usage_error(connect: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        connect("https://localhost:1", ca=tmp_path / "missing.pem")
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(UsageError, match="cannot be read"):
        connect("https://localhost:1", ca=wrong)
