"""The INFO line."""

import json

import pytest

from gnats.connection.info import INFO_FIELDS, Info
from gnats.version import JS_API_LEVEL, NATS_VERSION, RUNTIME, __version__

pytestmark = pytest.mark.timeout(60)


def info() -> Info:
    return Info(
        server_id="NID", server_name="name", host="0.0.0.0", port=4222, headers=True, max_payload=1024
    )


def parse(line: bytes) -> dict[str, object]:
    assert line.startswith(b"INFO {")
    assert line.endswith(b"} \r\n")
    found: dict[str, object] = json.loads(line[5:])
    return found


def test_the_first_line_has_these_fields_in_this_order() -> None:
    line = info().line(client_id=5, client_ip="127.0.0.1")
    text = (
        f'"server_id":"NID","server_name":"name","version":"{NATS_VERSION}","proto":1,"go":"{RUNTIME}",'
        '"host":"0.0.0.0","port":4222,"headers":true,"max_payload":1024,'
        f'"client_id":5,"client_ip":"127.0.0.1","api_lvl":{JS_API_LEVEL},"gnats":"{__version__}"'
    )
    assert line == f"INFO {{{text}}} \r\n".encode()


def test_authentication_is_announced() -> None:
    need = info()
    need.auth_required = True
    fields = parse(need.line())
    assert fields["auth_required"] is True
    assert list(fields).index("auth_required") == list(fields).index("headers") + 1


def test_the_line_after_connect_names_the_account() -> None:
    fields = parse(info().line(client_id=5, client_ip="::1", connect_info=True, remote_account="$G"))
    assert list(fields)[-6:-2] == ["client_id", "client_ip", "connect_info", "remote_account"]
    assert (fields["connect_info"], fields["remote_account"]) == (True, "$G")


def test_switched_off_features_are_said() -> None:
    plain = info()
    plain.headers = False
    plain.max_payload = 0
    fields = parse(plain.line())
    assert (fields["headers"], fields["max_payload"]) == (False, 0)


def test_a_line_with_changes_leaves_the_info_alone() -> None:
    same = info()
    assert parse(same.line(ldm=True))["ldm"] is True
    assert "ldm" not in parse(same.line())


def test_a_name_that_is_not_unicode_does_not_break_the_line() -> None:
    odd = info()
    odd.server_name = "n\udcff"
    assert parse(odd.line())["server_name"] == "n\ufffd"  # as Go encodes it


def test_every_field_sent_is_one_that_peers_know() -> None:
    everything = info().line(
        auth_required=True,
        client_id=1,
        client_ip="::1",
        connect_urls=("a:1",),
        ldm=True,
        connect_info=True,
        remote_account="A",
        acc_is_sys=True,
    )
    known = [name for name in INFO_FIELDS if name in parse(everything)]
    assert [*known, "gnats"] == list(parse(everything))
