"""What `gnats cluster up` prints: the table, the logs with names, the words of a member that ends."""

from __future__ import annotations

import io
import os

import pytest

from gnats.commands.cluster.output import Output, table
from gnats.commands.cluster.plan import Member

pytestmark = pytest.mark.timeout(60)

MEMBERS = [Member("s1", 4222, 8222, 6222, cluster="C"), Member("s2", 4223, 0, 6223, cluster="C")]
TABLE = """\
Cluster C: 2 servers, each connected to all others. Ctrl-C stops it.
name  clients                monitoring
s1    nats://127.0.0.1:4222  http://127.0.0.1:8222
s2    nats://127.0.0.1:4223  -
Connect to any of them: nats://127.0.0.1:4222,nats://127.0.0.1:4223
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_table_names_members_and_urls() -> None:
    assert table(["C"], MEMBERS) == TABLE
    assert table(["C"], MEMBERS[:1]).startswith("Cluster C: 1 server. Ctrl-C stops it.\n")


def test_the_table_names_leaf_nodes() -> None:
    leafs = [Member(f"l{n}", 4223 + n, 0, 0, is_leaf=True, cluster="C") for n in (1, 2)]
    assert table(["C"], [*MEMBERS, *leafs]) == (
        """\
Cluster C: 2 servers, each connected to all others, and 2 leaf nodes. Ctrl-C stops it.
name  clients                monitoring
s1    nats://127.0.0.1:4222  http://127.0.0.1:8222
s2    nats://127.0.0.1:4223  -
l1    nats://127.0.0.1:4224  -
l2    nats://127.0.0.1:4225  -
Connect to any of them: nats://127.0.0.1:4222,nats://127.0.0.1:4223
Connect to a leaf node: nats://127.0.0.1:4224 or nats://127.0.0.1:4225
"""
    )
    short = table(["C"], [MEMBERS[0], leafs[0]])
    assert short.startswith("Cluster C: 1 server, and 1 leaf node. Ctrl-C stops it.\n")
    assert short.endswith(
        "Connect to it: nats://127.0.0.1:4222\nConnect to a leaf node: nats://127.0.0.1:4224\n"
    )


def test_the_table_names_clusters() -> None:
    members = [Member("s1", 4222, 0, 6222, cluster="C-1"), Member("s2", 4223, 0, 6223, cluster="C-2")]
    leaf = Member("l1", 4224, 0, 0, is_leaf=True, cluster="C-1")
    assert table(["C-1", "C-2"], [*members, leaf]) == (
        """\
Clusters C-1, C-2: 1 server in each, joined by gateways, and 1 leaf node. Ctrl-C stops them.
name  cluster  clients                monitoring
s1    C-1      nats://127.0.0.1:4222  -
s2    C-2      nats://127.0.0.1:4223  -
l1    C-1      nats://127.0.0.1:4224  -
Connect to C-1: nats://127.0.0.1:4222
Connect to C-2: nats://127.0.0.1:4223
Connect to a leaf node: nats://127.0.0.1:4224
"""
    )


def test_lines_have_the_names_of_their_members() -> None:
    stream = io.StringIO()
    output = Output(["s9", "s10"], stream)
    output.print_table(["C"], MEMBERS)
    output.show("s9", ["a", ""])
    output.show("s10", ["b"])
    assert stream.getvalue().removeprefix(TABLE) == "s9  | a\ns9  | \ns10 | b\n"


def test_a_terminal_shows_names_in_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    output = Output(["s1", "s2"], stream)
    output.print_table(["C"], MEMBERS)
    output.show("s1", ["a"])
    output.show("s2", ["b"])
    assert stream.getvalue().removeprefix(TABLE) == "\x1b[36ms1 | \x1b[0ma\n\x1b[33ms2 | \x1b[0mb\n"
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    Output(["s1"], plain).print_table(["C"], MEMBERS)
    assert "\x1b" not in plain.getvalue()


def test_ordinary_lines_of_the_start_are_left_out() -> None:
    stream = io.StringIO()
    output = Output(["s1"], stream)
    stamp = "[7] 2026/11/26 22:13:03.906722 "
    ordinary = [
        f"{stamp}[INF] Server is ready",
        "[7] [INF] Server is ready",
        f"{stamp}[ERR] Error trying to connect to route (attempt 1): dial tcp 127.0.0.1:1: connect: refused",
    ]
    output.show("s1", [*ordinary, f"{stamp}[WRN] look", "Traceback"])
    assert stream.getvalue() == ""
    output.print_table(["C"], MEMBERS)
    output.show("s1", ordinary)
    shown = [f"{stamp}[WRN] look", "Traceback", *ordinary]
    assert stream.getvalue() == TABLE + "".join(f"s1 | {line}\n" for line in shown)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[7] 2026/11/26 22:13:03.906722 [FTL] Error listening", "Error listening"),
        ("[7] [FTL] Error listening", "Error listening"),
        ("gnats-server: a.conf:1:1: no", "a.conf:1:1: no"),
        ("MemoryError", "MemoryError"),
    ],
)
def test_the_last_words_are_without_what_precedes_them(line: str, words: str) -> None:
    output = Output(["s1", "s2"], io.StringIO())
    assert output.last_words("s1") == ""
    output.show("s1", ["[7] [INF] before", line, ""])
    output.show("s2", ["[7] [INF] other"])
    assert output.last_words("s1") == words


def test_a_reader_that_has_gone_is_noted_once() -> None:
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w")
    output = Output(["s1"], stream)
    assert output.pipe() == write
    output.print_table(["C"], MEMBERS)
    assert isinstance(output.error, BrokenPipeError)
    output.show("s1", ["a"])
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_file_is_no_pipe() -> None:
    with open(os.devnull, "w") as stream:  # noqa: PTH123
        assert Output(["s1"], stream).pipe() is None
