from __future__ import annotations

import pytest

from loadtest.drive.endpoint import Endpoint
from loadtest.errors import UsageError


@pytest.mark.parametrize(
    ("url", "authority", "path", "line"),
    [
        ("http://a", "a", "", "POST /v1/x HTTP/1.1"),
        ("http://a:80/", "a", "", "POST /v1/x HTTP/1.1"),
        ("http://a:8000/v1", "a:8000", "/v1", "POST /v1/x HTTP/1.1"),
        ("http://a:8000/team/v1/", "a:8000", "/team/v1", "POST /team/v1/x HTTP/1.1"),
        ("HTTP://A:8000/api", "a:8000", "/api", "POST /api/v1/x HTTP/1.1"),
        ("https://a:443", "a", "", "POST /v1/x HTTP/1.1"),
        ("https://a:80", "a:80", "", "POST /v1/x HTTP/1.1"),
        ("http://[::1]:9", "[::1]:9", "", "POST /v1/x HTTP/1.1"),
        ("http://bücher.example", "xn--bcher-kva.example", "", "POST /v1/x HTTP/1.1"),
    ],
)
def test_a_url_is_taken_apart(url: str, authority: str, path: str, line: str) -> None:
    endpoint = Endpoint(url)
    assert (endpoint.authority, endpoint.base_path) == (authority, path)
    lines = endpoint.request("/v1/x", b"{}").decode().split("\r\n")
    assert lines[:2] == [line, f"Host: {authority}"]
    assert lines[-3:] == ["Content-Length: 2", "", "{}"]


@pytest.mark.parametrize(
    "url",
    ["", "a:8000", "ftp://a", "http://", "http://a:x", "http://a:99999", "http://a b", "http://a\r\nx: y", "http://a?b=c",
     "http://a#b", "http://a/ü", "http://[::1", "http://" + "a" * 70 + ".example"],
)  # fmt: skip
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        Endpoint(url)


@pytest.mark.parametrize("url", ["http://user:canary@a:8000", "http://canary@a", "https://:canary@a"])
def test_a_url_with_a_secret_is_refused_without_naming_it(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Endpoint(url)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("a b", "c"), ("a:", "c"), ("", "c"), ("Host", "c"), ("content-LENGTH", "3"), ("a", "canary\r\nb: c"),
     ("a", "canaryé"), ("a", " canary"), ("a", "canary\n")],
)  # fmt: skip
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        Endpoint("http://a", {name: value})
    assert "canary" not in str(caught.value)


def test_a_path_that_is_none_is_our_own_mistake() -> None:
    for path in ("v1/x", "/v1/x\r\n", "/v1 /x"):
        with pytest.raises(ValueError, match="not a path"):
            Endpoint("http://a").request(path, b"")


def test_the_address_that_works_comes_first() -> None:
    endpoint = Endpoint("http://127.0.0.1:9")
    [only] = endpoint.addresses(1.0)
    endpoint.worked(only)
    assert endpoint.addresses(1.0) == [only]
    endpoint.worked(None)
    assert endpoint.addresses(1.0) == [only]
