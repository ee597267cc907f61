"""The configuration language beside nats-server -t: accepted texts, their digests, reasons of refusals.

A snippet is included into a map that is only used as a variable, so that its keys need not be options.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.launch import require
from support.servers import REFERENCE, TIMEOUT

from gnats.conf import parse_file
from gnats.errors import OptionError

pytestmark = pytest.mark.timeout(120)

MAIN = "x { include 'snippet.conf' }\nserver_name $x\nserver_name n\n"

VALUES = r"""
true|TRUE|yes|Yes|on|oN|false|no|off|OFF|truely|tru|'true'|"true"|true'
0|-0|1|-1|007|-007|12 |9223372036854775807|9223372036854775808|-9223372036854775808|-9223372036854775809
1k|1K|1kb|1KB|1ki|1KiB|1kbb|1kbi|1kiib|2m|2M|2mb|2mi|2mib|3g|3gb|3gib|4t|4tb|5p|5pb|1e|1eb|7e|8eb|-1k|-2MiB
-3x
10g|99999999999g|9223372036854775807k|2m30s|10s|5h|1h30m|1m5|1ms|1us|3d|1k2|1ki3|12ab|12_000|1,5|1;5|12}
1'2|1"2
1.0|1.5|-1.5|0.1|-0.0|0.000001|0.0000001|0.00000123|123456789012345678901.5|1234567890123456789012.5
3.14159265358979
1.|1.a|.5|-.5|-|-a|--1|1-|1-2|1.5k|1.5s|1.2.3|1.2.3.4|127.0.0.1:4222|10.0.0.0/8|1.2.3.4x|1:2|4222:|0x1F|1e5
1E5|1.5e3
2016-05-04T18:53:41Z|2016-05-04|2016-05-04T18:53:41|2016-13-04T18:53:41Z|2016-02-30T18:53:41Z
2016-02-29T18:53:41Z
2015-02-29T00:00:00Z|0001-01-01T00:00:00Z|9999-12-31T23:59:59Z|2016-05-04T24:00:00Z|2016-05-04T18:60:41Z
2016-05-04T18:53:60Z|2016-05-04t18:53:41Z|2016-05-04T18:53:41Zx|16-05-04T18:53:41Z|2016-5-04T18:53:41Z
12345-1
'a'|"a"|''|""|'a\n'|"a\n"|"\t\r\"\\"|"\x41\x7a"|"\xc3\xa9"|"\xff\xfe"|"\x4"|"\xg1"|"\q"|"\x"|a\tb|a\x41
a\qb|\|\x4|a\
'a'b|'a' b|"a"b|"it's"|'say "x"'|a'b|a"b|a'|a"|it's|'|"|'a|"a|"a\|"a\n|(|(a|()|(a)|)
host:4222|nats://u:p@h:1/p?q=r&s=t|a=b|a:b|a#b|a//b|a/b|/|//|#|/x|a{b|a[b|a(b|a]b|a}b|a,b|a;b|{|[|]|}|,|;|=
:|: 1|= 1
<script>&amp;</script>|"<&>"|é|"日本"|"\x01\x08\x0c\x1f\x7f"|*|>|foo.*.>|$|$$|$a|$A|$a$b|$a,|'$a'|"$a"|a$a
$2a$11$x.y/z
$2b$11$x|$2a|$2a$|{}|{ }|{b 1}|{b: 1}|{b}|{b }|{b:}|{b: }|{b 1, c 2}|{b 1; c 2}|{b 1 c 2}|{b:1,}|{b:1,,}
{,}|{: 1}|{= 1}|{]}
{"b":1}|{'b':1}|{"b" 1}|{"b":"c"}|{"b":{"c":{}}}|{b {c {}}}|{b|{b |{"b|{'b|{"b"|{"b":|{b: 1|{b: 1 |{{}}
{b: ,}|{b 1}}|{b 1} c 2
[]|[ ]|[1]|[1 ]|[ 1 , 2 ]|[1,2]|[a,b]|["a","b"]|[a b]|[,]|[a,]|[a,,b]|[a;b]|[[]]|[[a],[b]]|[{}]|[{b 1}]
[{b}]|[{b }]|[a|[a,|[|[ ]]
[a,{b 1},[c]]|[true,no]|[$a]|[ $a ]|[ 1, 1.5 , 2m , 10s , x ]|[ 1.2.3.4, 5]|[ -1]|[ 1.5]|["a"|['a'
[ 'a' 'b' ]|[ a / b ]|[ / ]
"""

SNIPPETS = [
    "",
    "\n",
    " ",
    "a",
    "a ",
    "a\n",
    "a\n1",
    "a:\n1",
    "a:",
    "a =",
    "a: ",
    "a:1",
    "a=1",
    "a 1",
    "a = : 1",
    "a == 1",
    "a : = 1",
    "= 1",
    ": 1",
    '"a": 1',
    "'a' = 1",
    '"a" 1',
    '"a"1',
    '"a b": 1',
    '"a\nb": 1',
    '"": 1',
    "'' 1",
    '"a',
    "'a",
    '"',
    "'",
    "a'b: 1",
    'a"b 1',
    "a.b: 1",
    "a-b 1",
    "é: 1",
    "a{b 1}",
    "a{ b 1}",
    "a {b 1}",
    "a\n{\nb 1\n}",
    "a: 1\nb: 2",
    "a: 1\r\nb: 2\r\n",
    "a: 1\rb: 2",
    "a: 1, b: 2",
    "a: 1; b: 2",
    "a: 1 b: 2",
    "a: 1,",
    "a: 1;",
    "a: 1,,b: 2",
    "a: 1; ;b: 2",
    "a: 1\n,b: 2",
    "a: 1 }",
    "a: 1 }}",
    "}",
    "}\n",
    "a }",
    "a\n}",
    "]",
    "a: 1\n]",
    "a 1\na 2",
    "a 1\nA 2",
    "a {b 1}\na {c 2}",
    # JSON, and braces around the whole file
    "{}",
    "{",
    "{ a",
    "{ a 1",
    "{ a 1\n",
    "{ a 1 }",
    "{ a 1 } x",
    "{ a 1 }\nb 2",
    "{ a 1, b 2 }",
    "{\n a 1\n b 2\n}\n",
    '{"a": 1, "b": [1 , 2 ], "c": {"d": null}}',
    '{"a": "x"}}',
    "{{ a 1 }}",
    "{{ a 1 }, b 2 }",
    "{ a 1 # c\n}",
    "{ # c\n a 1 // d\n}",
    "{ a {b 1} }",
    "{ a {b 1}, }",
    "{ a [1 ] ; c 2 }",
    "{ a 'x' / }",
    "{ /a 1 }",
    "{ , }",
    '{ "',
    "}{",
    # comments
    "# a",
    "// a",
    "/ a",
    "/",
    "# a\nb 1",
    "a 1 # b",
    "a 1 // b",
    "a 1 / b",
    "a 1 /\nb 2",
    "a 1# b",
    "a 'x'# b",
    "a 'x'// b",
    "a # b\n",
    "a: # b\n1",
    "a {# b\nc 1 # d\n# e\n}",
    "a {// b\nc 1 // d\n// e\n}",
    "a { / b 1 }",
    "a {/b 1 }",
    "a { b 'c' / d 1 }",
    "a [# b\nc # d\n,# e\n]",
    "a [// b\n'c' // d\n// e\n]",
    "a [ 'c' / 'd' ]",
    "a [ b # c ]",
    "# a \x00 b\nc 1",
    # strings of several lines
    "a 'b\nc'",
    'a "b\nc"',
    "a (\n)\n",
    "a (\nb\n)\n",
    "a (\nb\n)",
    "a (\nb)\n)\n",
    "a (\n b\n )\n",
    "a (b\n)\n",
    "a (\nb\n) \n",
    "a (\r\nb\r\n)\r\n",
    "a (\nb\n)\nc 1",
    "a (\n(\n)\n)\n",
    "a { b (\nc\n)\n}",
    "a [ (\nb\n)\n, c ]",
    "a (\n\x00\n)\n",
    "a (\nb\n)\x00c 1",
    # keys and values in maps
    "a { b 1\nc 2 }",
    "a { b\n1 }",
    "a { b:\n1 }",
    "a { b\n}\nc 1",
    "a { b }\nc 1",
    "a { b: }\nc 1",
    "a { b: }",
    "a [ {b } ]\nc 1",
    "a { b 1kbb, c 2 }",
    "a 1kbb\nb { c 2 }",
    "a { b {c 1} d 2 }",
    "a { b {c 1}\nd 2 }",
    "a { b [1 ] c 2 }",
    "a { b 'c', }",
    "a { b 'c';; }",
    "a { b 'c'\n\n\n}",
    "a { 'b' : 'c' 'd' : 'e' }",
    "a [ 'b'\n'c'\n\n'd' ]",
    "a [ b\nc\n]",
    "a [\n1\n2\n]",
    "a [ { b 1 }\n{ b 2 } ]",
    "a [ { b 1 } { b 2 } ]",
    # variables
    "a 1\nb $a",
    "b $a\na 1",
    "a 1\nb { c $a }",
    "a 1\nb { a 2, c $a }\nd $a",
    "b { a 2 }\nc $a",
    "a { b 1 }\nc $a\nd [ $a, $a ]",
    "a 1\na $a\nb $a",
    "a $a",
    "a 'x'\n$a 1",
    "a x\nb $a.y",
    "a { b 1, c $b, d { e $c } }",
    "a 1\nb \\$a",
    "a 1\nb '$a'",
    "'' 1\na $",
    "a b\nc [ { d $a } , { a 1, e $a } ]",
    "a $GNATS_T_INT",
    "a $GNATS_T_WORD",
    "a $GNATS_T_QUOTED",
    "a $GNATS_T_MAP\nb $c",
    "a $GNATS_T_CHAIN",
    "a $GNATS_T_CYCLE",
    "a $GNATS_T_BAD",
    "a $GNATS_T_EMPTY",
    "a $GNATS_T_LINES",
    "a $GNATS_T_DROPPED",
    "a $GNATS_T_MISSING",
    "a [ $GNATS_T_INT, $GNATS_T_INT ]",
    "GNATS_T_INT 1\na $GNATS_T_INT",
    # includes
    "include other.conf",
    "include 'other.conf'",
    'include "other.conf"',
    "include ./other.conf",
    "include /other.conf",
    "include sub/../other.conf",
    "INCLUDE other.conf",
    "include: other.conf",
    "include = other.conf",
    "'include' other.conf",
    "include other.conf;",
    "include other.conf; a 1",
    "include other.conf\na 2\nb $o",
    "include other.conf # c",
    "include other.conf,",
    "include other.conf'",
    "include missing.conf",
    "include 'missing.conf",
    'include "missing.conf',
    "include",
    "include ",
    "include\n",
    "include [x]",
    "include {x}",
    "include (x)",
    "include 1.conf",
    "include -1.conf",
    "include \\x",
    "a { include other.conf }",
    "a { include other.conf; b 1 }",
    "a { include 'other.conf', b 1 }",
    "a { include 'other.conf' b 1 }",
    "a { include other.conf\nb $o }",
    "a { include }",
    "a [ include other.conf ]",
    "{ include other.conf\n}",
    "o 5\ninclude other.conf",
    "include other.conf\no 5",
    "include sub/deep.conf",
    "include bad.conf",
    # the end of the text, and odd characters
    "a \x00",
    "a 1\x00",
    "a 1\x00b 2",
    "\x00",
    'a "b\x00c"',
    "a 'b\x00c'",
    '"\x00a 1',
    '"a\x00" 1',
    "a { b\x00 1 }",
    "a\x00 1",
    "a\x0b1",
    "a\x0c1\x0cb",
    "a\xa01",
    "a\u20281",
    "a 'b'\xa0",
    "\xa0a 1",
    "a \u0661\u0662",
    "a 1\u0662",
    "a 1\u0662k",
    "a 1.\u0662",
    "a \u0662016-05-04T18:53:41Z",
    "\ufeffa 1",
    'a "\u2028\u2029\x7f"',
    '"<k>&": 1',
    "b 1\na 2\né 3\n\u20ac 4\nZ 5",
    "a [ 'b\n', \"c\\n\", d\n]\ne",
    "a b\udcffc",
    "\udcffa 1\n\udcfea 2",
]
SNIPPETS += [f"a {value}" for line in VALUES.strip().split("\n") for value in line.split("|")]
SNIPPETS += [f"a {{ b {value}\n}}" for line in VALUES.strip().split("\n") for value in line.split("|")[::3]]

FILES = {
    "main.conf": MAIN,
    "other.conf": "o 1\np { q 2 }\n",
    "sub/deep.conf": "include deeper.conf\ninclude '../other.conf'\n",
    "sub/deeper.conf": "deeper yes",
    "bad.conf": "a 1\nb =\n",
}
ENVIRONMENT = {
    "INT": "2k",
    "WORD": "word",
    "QUOTED": "'2k'",
    "MAP": "{ c 1, d [ 2 , { e 3 } ] }",
    "CHAIN": "$GNATS_T_MAP",
    "CYCLE": "[ $GNATS_T_CYCLE ]",
    "BAD": "two words",
    "EMPTY": "",
    "LINES": "1\nb = 2\npk = 3\n",
    "DROPPED": "1kbb",
}


@pytest.fixture(scope="module")
def nats_server() -> Path:
    require(REFERENCE)
    return REFERENCE.find()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("conf")
    for name, text in FILES.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)
    return path


@pytest.fixture(autouse=True)
def environment(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(f"GNATS_T_{name}", value)


def reference(nats_server: Path, path: str) -> str:
    """Return the digest that nats-server prints for a file, or its error."""
    done = subprocess.run(
        [nats_server, "-t", "-c", path], stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT
    )
    output = (done.stdout + done.stderr).decode("utf-8", "surrogateescape")
    accepted = re.fullmatch(
        r"nats-server: configuration file .* is valid \((sha256:[0-9a-f]{64})\)\n", output
    )
    assert (accepted is not None) == (done.returncode == 0), output
    return accepted[1] if accepted else output.removesuffix("\n")


def gnats(path: str) -> str:
    try:
        return parse_file(path).digest
    except OptionError as exc:
        return str(exc)


def place_and_reason(error: str) -> str:
    """Rewrite an error of nats-server in gnats's form, with the line where it names one."""
    error = re.sub(r"^(nats-server: )?(error parsing include file '[^']*\.conf', (?!open ))*", "", error)
    if found := re.fullmatch(r"Parse error on line (\d+): '(.*)'", error, re.DOTALL):
        error = f"{found[1]}: Parse error: {found[2]}"
    elif found := re.fullmatch(r"config is invalid \((.*)\)", error):
        error = f"{found[1]}: config is invalid"
    elif found := re.fullmatch(
        r"variable reference for '(.*?)' on line (\d+) (can not .*)", error, re.DOTALL
    ):
        error = f"{found[2]}: variable reference for '{found[1]}' {found[3]}"
    elif found := re.fullmatch(
        r"(variable reference for '.*?') on line (\d+) (could .*?:) .*", error, re.DOTALL
    ):
        error = f"{found[2]}: {found[1]} {found[3]}"
    error = error.replace("'\0'", "the end")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in error)


def assert_same(theirs: str, ours: str) -> None:
    if theirs.startswith("sha256:") or ours.startswith("sha256:"):
        assert ours == theirs
        return
    expected = place_and_reason(theirs)
    _file, line, _pos, reason = ours.split(":", 3)
    reason = re.sub(r"\\udc[89a-f][0-9a-f]", "\ufffd", reason)
    possible = [reason.strip(), f"{line}:{reason}", ours]
    if "could not be parsed:" in expected:  # places follow, which nats-server does not have
        possible = [f"{line}:{reason.split('parsed:')[0]}parsed:"]
    assert expected in possible, ours


@pytest.mark.parametrize("snippet", SNIPPETS, ids=ascii)
def test_a_snippet(nats_server: Path, directory: Path, snippet: str) -> None:
    (directory / "snippet.conf").write_bytes(snippet.encode("utf-8", "surrogateescape"))
    assert_same(reference(nats_server, "main.conf"), gnats("main.conf"))


@pytest.mark.parametrize(
    "text",
    [
        "server_name",
        "server_name:",
        "server_name: n",
        "{server_name: n}",
        '{"server_name": "n", "port": 4222, "max_payload": 1MB\n}',
        "server_name n\n}",
        "server_name n\ninclude './other2.conf'",
        "server_name n\nport 1 2",
        "n 'x'\nserver_name $n",
        "server_name $GNATS_T_WORD",
        "max_connections: 2m\nmax_payload 2k",
        "ping_interval: 2m30s",
        "authorization {\n users = [\n {user: a, password: $2a$11$abcdefgh}\n {user: b, pass: b}\n ]\n}",
        "logtime: off; debug: 1 2",
        "tls_x { a 1 }\nserver_name $tls_x\nserver_name 'n'\nserver_tags: [ 'a', \"b\", c ]\n",
    ],
)
def test_a_whole_configuration(nats_server: Path, directory: Path, text: str) -> None:
    (directory / "whole.conf").write_text(text)
    assert_same(reference(nats_server, "whole.conf"), gnats("whole.conf"))


PIECES = [
    *" \n\n\r\t:=,;{}{}[]()#/\"'\\$-.ab12\0",
    *("a ", "b: ", "12", " 1.5 ", "2016-05-04T18:53:41Z", "true", "no", "include", "k", "mb", "ki", "//"),
    *("\\x41", "\\xc3\\xa9", "\\xff", "$a", "é", "\u0663", "\xa0", "\u2028", "\udcff", "<&>", "0.0000001"),
    *("(\n", "\n)\n", "{ a: 1 }", "[ 1 , 2 ]", "'s'", '"d"', "$2a$11$x", "\nc "),
]


@settings(max_examples=300, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=15).map("".join))
def test_mixtures_of_the_languages_pieces(nats_server: Path, snippet: str) -> None:
    Path("snippet.conf").write_bytes(snippet.encode("utf-8", "surrogateescape"))
    assert_same(reference(nats_server, "main.conf"), gnats("main.conf"))


@pytest.mark.parametrize(
    "text",
    [
        "a 1\n  b: 2; c = 'x'\n\n\t'd' : [ 1 ], \"e\" {\n}\n{ f 1 }\n",
        "a (\n b\n)\n c 'x\ny' ; d 2\n# z\n // z\n  e 1 # z\nf { g 1 }",
        "é ü; ö 'é\nü', 'ä\nö' 1\n \xa0b 1\na $GNATS_T_MAP\n",
        "a 1\ninclude other.conf\n  b $o\nx { include other.conf }",
        '{\n  "a": "\\t\\x41", "b": 2,\n "c" {"d": 1}\n}',
    ],
)
def test_keys_have_the_places_that_nats_server_reports(nats_server: Path, directory: Path, text: str) -> None:
    (directory / "places.conf").write_text(text)
    unknown = sorted(
        f'{token.file}:{token.line}:{token.pos}: unknown field "{key}"'.encode("unicode_escape")
        for key, token in parse_file("places.conf").root.items()
        if not token.used_variable
    )
    lines = reference(nats_server, "places.conf").removeprefix("nats-server: ").splitlines()
    assert sorted(line.replace("\\n", "\n").encode("unicode_escape") for line in lines) == unknown


def test_a_cycle_of_includes_is_refused_where_nats_server_never_ends(directory: Path) -> None:
    (directory / "snippet.conf").write_text("include snippet.conf")
    assert gnats("main.conf") == "snippet.conf:1:8: include cycle for 'snippet.conf'"
