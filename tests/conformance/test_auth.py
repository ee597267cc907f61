"""Authentication with a token or with user and password: accepted clients, and the time of a refusal."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from support.exchange import ask
from support.kernel import SocketDiag
from support.launch import Launch
from support.servers import Server
from support.wire import VIOLATION, Connection

from .cases import CLOSED, INFO, OK, OPEN, UNKNOWN, params

pytestmark = pytest.mark.timeout(60)

GOOD_TOKEN = b'CONNECT {"verbose":false,"auth_token":"t0ken"}\r\n'
GOOD_USER = b'CONNECT {"verbose":false,"user":"me","pass":"s3cret"}\r\n'

TOKEN_CASES = {
    "right token": (GOOD_TOKEN, OPEN),
    "right token and a session": (
        GOOD_TOKEN + b"SUB zzzz 1\r\nPUB zzzz 2\r\nhi\r\n",
        b"MSG zzzz 1 2\r\nhi\r\n" + OPEN,
    ),
    "right token, verbose": (b'CONNECT {"auth_token":"t0ken"}\r\n', OK + OPEN),
    "right token, protocol 1": (
        b'CONNECT {"verbose":false,"protocol":1,"auth_token":"t0ken"}\r\n',
        b"PONG\r\n" + INFO,
    ),
    "wrong token": (b'CONNECT {"verbose":false,"auth_token":"token"}\r\n', VIOLATION),
    "begin of the token": (b'CONNECT {"verbose":false,"auth_token":"t0ke"}\r\n', VIOLATION),
    "longer token": (b'CONNECT {"verbose":false,"auth_token":"t0kent"}\r\n', VIOLATION),
    "empty token": (b'CONNECT {"verbose":false,"auth_token":""}\r\n', VIOLATION),
    "no token": (b'CONNECT {"verbose":false}\r\n', VIOLATION),
    "token as user": (b'CONNECT {"verbose":false,"user":"t0ken"}\r\n', VIOLATION),
    "token as user and password": (b'CONNECT {"verbose":false,"user":"t0ken","pass":"t0ken"}\r\n', VIOLATION),
    "token as password": (b'CONNECT {"verbose":false,"pass":"t0ken"}\r\n', VIOLATION),
    "token and a user": (b'CONNECT {"verbose":false,"user":"x","pass":"y","auth_token":"t0ken"}\r\n', OPEN),
    "token of a wrong type": (b'CONNECT {"verbose":false,"auth_token":5}\r\n', CLOSED),
    "token null": (b'CONNECT {"verbose":false,"auth_token":null}\r\n', VIOLATION),
    "token in capitals": (b'CONNECT {"verbose":false,"auth_token":"T0KEN"}\r\n', VIOLATION),
    "bad JSON": (b"CONNECT {\r\n", CLOSED),
    "right token and an account": (
        b'CONNECT {"verbose":false,"auth_token":"t0ken","account":"A"}\r\n',
        VIOLATION,
    ),
    "right token and a bad protocol": (
        b'CONNECT {"verbose":false,"auth_token":"t0ken","protocol":5}\r\n',
        b"-ERR 'invalid client protocol'\r\n",
    ),
    "wrong token and a bad protocol": (
        b'CONNECT {"verbose":false,"auth_token":"x","protocol":5}\r\n',
        VIOLATION,
    ),
    "second connect without token": (GOOD_TOKEN + b'CONNECT {"verbose":false}\r\n', OPEN),
    "second connect with a wrong token": (GOOD_TOKEN + b'CONNECT {"auth_token":"x"}\r\n', VIOLATION),
    "second connect with the right token": (
        GOOD_TOKEN + b"SUB zzzz 1\r\n" + GOOD_TOKEN + b"PUB zzzz 0\r\n\r\n",
        OPEN,
    ),
}

FIRST_VERB = {
    "ping": (b"PING\r\n", VIOLATION),
    "pong": (b"PONG\r\n", VIOLATION),
    "pub": (b"PUB zzzz 2\r\nhi\r\n", VIOLATION),
    "sub": (b"SUB zzzz 1\r\n", VIOLATION),
    "unsub": (b"UNSUB 1\r\n", VIOLATION),
    "info": (b"INFO {}\r\n", VIOLATION),
    "ok": (b"+OK\r\n", VIOLATION),
    "err": (b"-ERR x\r\n", VIOLATION),
    "unknown verb": (b"FOO\r\n", VIOLATION),
    "empty line": (b"\r\n", VIOLATION),
    "one byte": (b"S", VIOLATION),
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", VIOLATION),
    "TLS client hello": (b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03" + bytes(32), VIOLATION),
    "a verb with C that is not connect": (b"CLOSE\r\n", UNKNOWN),
    "connect in lower case": (b'connect {"verbose":false,"auth_token":"t0ken"}\r\n', OPEN),
    "ping before the right connect": (b"PING\r\n" + GOOD_TOKEN, VIOLATION),
    "connect too long": (b"CONNECT " + b"x" * 5000 + b"\r\n", b"-ERR 'maximum control line exceeded'\r\n"),
}

USER_CASES = {
    "right": (GOOD_USER, OPEN),
    "right, and a session": (
        GOOD_USER + b"SUB zzzz 1\r\nPUB zzzz 2\r\nhi\r\n",
        b"MSG zzzz 1 2\r\nhi\r\n" + OPEN,
    ),
    "right, and a token": (
        b'CONNECT {"verbose":false,"user":"me","pass":"s3cret","auth_token":"x"}\r\n',
        OPEN,
    ),
    "wrong password": (b'CONNECT {"verbose":false,"user":"me","pass":"secret"}\r\n', VIOLATION),
    "begin of the password": (b'CONNECT {"verbose":false,"user":"me","pass":"s3cre"}\r\n', VIOLATION),
    "empty password": (b'CONNECT {"verbose":false,"user":"me","pass":""}\r\n', VIOLATION),
    "no password": (b'CONNECT {"verbose":false,"user":"me"}\r\n', VIOLATION),
    "wrong user": (b'CONNECT {"verbose":false,"user":"you","pass":"s3cret"}\r\n', VIOLATION),
    "no user": (b'CONNECT {"verbose":false,"pass":"s3cret"}\r\n', VIOLATION),
    "nothing": (b'CONNECT {"verbose":false}\r\n', VIOLATION),
    "token only": (b'CONNECT {"verbose":false,"auth_token":"s3cret"}\r\n', VIOLATION),
    "user of a wrong type": (b'CONNECT {"verbose":false,"user":1,"pass":"s3cret"}\r\n', CLOSED),
    "password of a wrong type": (b'CONNECT {"verbose":false,"user":"me","pass":["s3cret"]}\r\n', CLOSED),
    "ping first": (b"PING\r\n", VIOLATION),
}


@pytest.fixture(scope="module")
def token_server(launch_shared: Launch) -> Server:
    # A slow machine may need more than the two seconds that are the default.
    return launch_shared("--auth", "t0ken", config="authorization { timeout: 60 }")


@pytest.fixture(scope="module")
def user_server(launch_shared: Launch) -> Server:
    return launch_shared("--user", "me", "--pass", "s3cret")


@pytest.mark.parametrize(("sent", "answer"), params(TOKEN_CASES) + params(FIRST_VERB))
def test_token(token_server: Server, diag: SocketDiag, sent: bytes, answer: bytes) -> None:
    assert ask(token_server, [[sent]], diag) == [answer]


@pytest.mark.parametrize(("sent", "answer"), params(USER_CASES))
def test_user(user_server: Server, diag: SocketDiag, sent: bytes, answer: bytes) -> None:
    assert ask(user_server, [[sent]], diag) == [answer]


def test_connect_cut_at_every_byte(token_server: Server, diag: SocketDiag) -> None:
    data = GOOD_TOKEN + b"PING\r\n"
    cuts = [[data[:cut], data[cut:]] for cut in range(1, len(data))]
    assert set(ask(token_server, [*cuts, [data[i : i + 1] for i in range(len(data))]], diag)) == {
        b"PONG\r\n" + OPEN
    }


def test_whoever_does_not_connect_in_time_is_closed(launch: Launch, server: Server) -> None:
    """A client has two seconds to complete CONNECT. A server without authentication sets no limit."""
    strict = launch("--auth", "t0ken")
    with Connection(server.address) as free, Connection(strict.address) as good, ExitStack() as stack:
        good.send(GOOD_TOKEN)
        silent, slow = [stack.enter_context(Connection(strict.address)) for _ in range(2)]
        slow.send(GOOD_TOKEN[:-1])
        assert silent.rest() == slow.rest() == b"-ERR 'Authentication Timeout'\r\n"
        for connection in (good, free):
            assert connection.fence() == []


def test_greeting_says_that_authentication_is_needed(token_server: Server, user_server: Server) -> None:
    for server in (token_server, user_server):
        with Connection(server.address) as connection:
            assert connection.info["auth_required"] is True


def test_failures_are_logged_and_secrets_are_not(launch: Launch, diag: SocketDiag) -> None:
    server = launch("-DV", "--user", "me", "--pass", "s3cret")
    wrong = b'CONNECT {"verbose":false,"user":"me","pass":"wr0ng","auth_token":"an0ther"}\r\n'
    assert ask(server, [[wrong], [GOOD_USER]], diag) == [VIOLATION, OPEN]
    server.wait_log(r'\[ERR\] \S+ - cid:\d+ - authentication error - User "me"')
    server.wait_log(r"<<- \[PING\]")
    assert "[REDACTED]" in server.log
    for secret in ("s3cret", "wr0ng", "an0ther"):
        assert secret not in server.log
