"""Secrets, hidden wherever they stand."""

from loadtest.servers.hiding import carried, without

KEY = "KEYCANARY777"


def test_a_secret_is_hidden_whole_and_cut():
    secrets = carried({"Authorization": f"Bearer {KEY}", "X-Two": "two  blanks"})
    assert without(secrets, f"bad key Bearer {KEY}, or {KEY}") == "bad key Bearer (hidden), or (hidden)"
    assert without(secrets, "bad key Bearer KEYCANA…") == "bad key Bearer (hidden)…"
    assert without(secrets, "bad key KEYCANARY77… is none") == "bad key (hidden)… is none"
    assert without(secrets, "said two blanks") == "said (hidden)"
    assert without(secrets, "a KEY… is needed") == "a KEY… is needed"
    assert without((), KEY) == KEY
