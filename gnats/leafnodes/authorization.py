"""Which leaf nodes may connect, and to which accounts (isLeafNodeAuthorized in auth.go)."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from gnats.auth.authenticator import Authenticator, Decision, Denied
from gnats.auth.passwords import TooManyWaitError, check_password, check_password_async, is_bcrypt
from gnats.client.grant import Grant
from gnats.go.text import quote
from gnats.nkeys.nkeys import NkeyError, verify_nonce
from gnats.options.values.auth import GLOBAL_ACCOUNT, User

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.leafnodes.leaf import Leaf
    from gnats.log.logger import Logger
    from gnats.options.options import Options
    from gnats.options.values.leafnodes import LeafNodeOptions


class LeafAuthorization:
    """Decides which leaf nodes may connect.

    An `authorization` of the leafnodes block replaces the users of the server. `clients` returns what decides
    about those.
    """

    def __init__(
        self,
        options: "Callable[[], Options]",
        clients: Callable[[], Authenticator],
        lookup_account: "Callable[[str], Coroutine[Any, Any, Account | None]]",
        log: "Logger",
    ) -> None:
        self._options = options
        self._lookup_account = lookup_account
        self._clients = clients
        self._log = log

    @property
    def takes_jwts(self) -> bool:
        """Whether a JWT in CONNECT is used."""
        return self._clients().takes_jwts

    @property
    def has_users(self) -> bool:
        """Whether leaf nodes have users of their own: their connections are no events of the account."""
        block = self._options().leafnodes
        return bool(block.username or block.nkey or block.users)

    def check(self, leaf: "Leaf") -> Decision:
        """Decide whether a leaf node may connect with its CONNECT. Raises Denied."""
        decision = self._check(leaf)
        return self._with_account(decision) if isinstance(decision, Grant) else decision

    def _with_account(self, grant: Grant) -> Decision:
        """Have a resolver look for the account of the leafnodes block, where JWTs define accounts."""
        by_jwt = self.takes_jwts and self._options().leafnodes.account == grant.account
        return self._look_up(grant) if by_jwt else grant

    async def _look_up(self, grant: Grant) -> Grant:
        await self._lookup_account(grant.account)
        return grant

    def _check(self, leaf: "Leaf") -> Decision:
        block = self._options().leafnodes
        if block.username:
            if block.username != leaf.opts.user:
                raise Denied
            return self._check_password(leaf, block.password, Grant(block.account or GLOBAL_ACCOUNT))
        if block.nkey:
            return self._check_nkey(leaf, block)
        if block.users:
            user = self._mapped(leaf, block) if _maps(block) else self._named(leaf, block)
            return self._check_password(leaf, user.password, Grant(user.account or GLOBAL_ACCOUNT))
        clients = self._clients()
        if not clients.required:
            return Grant(block.account or GLOBAL_ACCOUNT)
        return clients.check(leaf)

    def _check_nkey(self, leaf: "Leaf", block: "LeafNodeOptions") -> Grant:
        if leaf.opts.nkey != block.nkey:
            raise Denied
        try:
            verify_nonce(block.nkey, leaf.nonce, leaf.opts.sig)
        except NkeyError as exc:
            raise Denied(str(exc)) from None
        return Grant(block.account or GLOBAL_ACCOUNT)

    def _named(self, leaf: "Leaf", block: "LeafNodeOptions") -> User:
        for user in block.users:
            if user.username == leaf.opts.user:
                return user
        raise Denied

    def _mapped(self, leaf: "Leaf", block: "LeafNodeOptions") -> User:
        from gnats.tls.certmap import find_user

        users = {user.username: user for user in block.users}
        name, why = find_user(leaf.peer_certificate(), users)
        if name is None:
            raise Denied(why)
        self._log.debug(f"{leaf} - {why}")
        if leaf.opts.user:
            text = f"User {quote(leaf.opts.user)} found in connect proto, but user required from cert"
            self._log.warn(text)
        leaf.opts.user = name
        return users[name]

    @staticmethod
    def _check_password(leaf: "Leaf", stored: str, granted: Grant) -> Decision:
        if is_bcrypt(stored):
            return _check_hash(leaf, stored, granted)
        if not check_password(stored, leaf.opts.password):
            raise Denied
        return granted


def _maps(block: "LeafNodeOptions") -> bool:
    return block.tls is not None and block.tls.verify_and_map


async def _check_hash(leaf: "Leaf", stored: str, granted: Grant) -> Grant:
    try:
        good = await check_password_async(stored, leaf.opts.password, leaf.host)
    except TooManyWaitError as exc:
        raise Denied(str(exc)) from None
    if not good:
        raise Denied
    return granted
