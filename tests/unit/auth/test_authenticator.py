"""The authenticator accepts and refuses clients."""

from typing import Any

import pytest

from gnats.auth.authenticator import Authenticator, Denied
from gnats.connection.closed_state import ClosedState
from gnats.connection.connect_options import ClientOptions
from gnats.log.logger import SilentLogger
from gnats.options.options import Options
from gnats.options.values.auth import NkeyUser, User

pytestmark = pytest.mark.timeout(60)


def auth_required(opts: Options) -> bool:
    return Authenticator(opts, SilentLogger()).required


class Asking:
    """A session for the authenticator: CONNECT options and a nonce."""

    connection_type = "STANDARD"

    def __init__(self, opts: ClientOptions, nonce: str = "") -> None:
        self.opts = opts
        self.nonce = nonce

    def peer_certificate(self) -> None:
        return None


def check_authentication(opts: Options, client: ClientOptions) -> bool:
    try:
        Authenticator(opts, SilentLogger()).check(Asking(client))
    except Denied:
        return False
    return True


USER = Options(username="bob", password="pw")
TOKEN = Options(authorization="tok")


def test_nothing_is_asked_for_by_default() -> None:
    assert not auth_required(Options())
    assert check_authentication(Options(), ClientOptions(user="anybody", password="x"))


def test_a_password_alone_asks_for_nothing() -> None:
    assert not auth_required(Options(password="pw"))


@pytest.mark.parametrize(
    ("client", "allowed"),
    [
        (ClientOptions(user="bob", password="pw"), True),
        (ClientOptions(user="bob", password="pW"), False),
        (ClientOptions(user="bob", password="pw "), False),
        (ClientOptions(user="bob"), False),
        (ClientOptions(user="al", password="pw"), False),
        (ClientOptions(password="pw"), False),
        (ClientOptions(auth_token="pw"), False),
        (ClientOptions(), False),
    ],
)
def test_a_user_needs_its_name_and_password(client: ClientOptions, allowed: bool) -> None:
    assert auth_required(USER)
    assert check_authentication(USER, client) is allowed


@pytest.mark.parametrize(
    ("client", "allowed"),
    [
        (ClientOptions(auth_token="tok"), True),
        (ClientOptions(auth_token="tok", user="anybody"), True),
        (ClientOptions(auth_token="to"), False),
        (ClientOptions(user="tok", password="tok"), False),
        (ClientOptions(), False),
    ],
)
def test_a_token_is_all_that_is_needed(client: ClientOptions, allowed: bool) -> None:
    assert auth_required(TOKEN)
    assert check_authentication(TOKEN, client) is allowed


def test_a_user_without_password_has_the_empty_one() -> None:
    opts = Options(username="bob")
    assert check_authentication(opts, ClientOptions(user="bob"))
    assert not check_authentication(opts, ClientOptions(user="bob", password="x"))


def test_secrets_may_be_any_text() -> None:
    opts = Options(username="bob", password="pässwörd😀")
    assert check_authentication(opts, ClientOptions(user="bob", password="pässwörd😀"))
    assert not check_authentication(opts, ClientOptions(user="bob", password="password"))


def test_the_token_wins_over_the_user() -> None:
    opts = Options(username="bob", password="pw", authorization="tok")
    assert check_authentication(opts, ClientOptions(auth_token="tok"))
    assert not check_authentication(opts, ClientOptions(user="bob", password="pw"))


@pytest.mark.parametrize("required", [False, True])
def test_a_user_that_requires_a_proxy_does_not_come_without(required: bool) -> None:
    opts = Options(
        users=[User("bob", "pw", proxy_required=required)],
        nkeys=[NkeyUser("UBOB", proxy_required=required)],
        no_auth_user="UBOB",
    )
    for client in (ClientOptions(user="bob", password="pw"), ClientOptions()):
        assert check_authentication(opts, client) is not required


def test_a_reload_may_require_a_proxy() -> None:
    before = Authenticator(Options(users=[User("bob", "pw")]), SilentLogger())
    after = Authenticator(Options(users=[User("bob", "pw", proxy_required=True)]), SilentLogger())
    asking: Any = Asking(ClientOptions(user="bob", password="pw"))
    asking.grant = before.check(asking)
    assert before.recheck(asking, before) == asking.grant
    with pytest.raises(Denied) as refused:
        after.recheck(asking, before)
    assert refused.value.state is ClosedState.PROXY_REQUIRED
