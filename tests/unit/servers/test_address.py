"""Addresses of servers: read once, for every client of ours."""

from __future__ import annotations

import pytest

from loadtest.errors import UsageError
from loadtest.servers.address import clean_url, same_place


@pytest.mark.parametrize(
    ("word", "url"),
    [
        ("b:8001", "http://b:8001"),
        ("http://a:8000/v1/", "http://a:8000"),
        ("HTTP://A:80/Team/", "http://a/Team"),
        ("https://a:443", "https://a"),
        ("http://[::1]:9/v1", "http://[::1]:9"),
        ("http://my_server:8000", "http://my_server:8000"),
        ("http://bücher.example", "http://xn--bcher-kva.example"),
    ],
)
def test_a_url_in_its_plain_form(word, url):
    assert clean_url(word, "--server") == url


@pytest.mark.parametrize(
    "word",
    ["http://[::1", "http://[::g]:1", "http://a..b", "http://☃.net", "http://xn--/", "http://xn--n3h.net", "http://a\x01",
     "http://" + "a" * 300, "http://" + "a." * 150, "http://a\udcff", "http://a\n", " http://a", "http://a%00b",
     "http:/a", "http://a:0", "http://a:99999", "http://a:x", "ftp://a", "//a", "http://", "", "http://a/ü",
     "http://a?b", "http://a#b"],
)  # fmt: skip
def test_what_no_client_could_use_is_refused(word):
    with pytest.raises(UsageError, match="--server"):
        clean_url(word, "--server")


@pytest.mark.parametrize(
    "word",
    ["http://a/?key=canary", "http://a/x#canary", "http://a?canary", "a?canary\x01",
     "http://u:canary@a", "http://canary@a", "http://u:canary@a\x01", "http://u:canary@[::1", "http:/u:canary@a",
     "ftp://u:canary@a", "u:canary@a:1"],
)  # fmt: skip
def test_a_password_is_never_shown(word):
    with pytest.raises(UsageError) as refused:
        clean_url(word, "--server")
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("http://127.0.0.1:1", "http://LOCALHOST:1", True),
        ("http://localhost:1", "http://[::1]:1", True),
        ("http://localhost.:1", "http://[::ffff:127.0.0.1]:1", True),
        ("http://a:80", "http://A.", True),
        ("https://a", "http://a:443", True),
        ("http://[::0001]:1", "http://[::1]:1", True),
        ("http://127.0.0.1:1", "http://127.0.0.1:2", False),
        ("http://127.0.0.1:1", "http://127.0.0.2:1", False),
        ("http://a/first", "http://a/second", False),
        ("http://a", "http://b", False),
    ],
)
def test_two_ways_to_write_one_place(first, second, same):
    assert same_place(first, second) is same
