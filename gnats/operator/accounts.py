"""Operator mode in a server (accounts.go, server.go): apply the changes of OperatorMode (AccountsHook)."""

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, cast

from gnats.accounts.internal_client import InternalClient
from gnats.auth.account_jwt import ClaimAccount
from gnats.auth.connect import auth_violation, close_over_maximum, limits, permissions_of
from gnats.client.grant import JWTUser
from gnats.clock import Timer, call_later, seconds_until, unix_time
from gnats.connection.closed_state import ClosedState
from gnats.errors import ServerError
from gnats.go.text import quote
from gnats.operator.authenticator import granted_permissions
from gnats.operator.mode import OperatorMode
from gnats.operator.requests import ClaimsServices, OtherServers, Spawn
from gnats.options.values.accounts import ServiceImport, StreamImport
from gnats.resolver import build_resolver
from gnats.resolver.base import ResolverError
from gnats.resolver.directory import DirectoryResolver

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.accounts.accounts import Accounts
    from gnats.client.session import Session
    from gnats.events.events import Events
    from gnats.events.replies import Replies
    from gnats.log.logger import Logger
    from gnats.options.options import Options


class OperatorAccounts:
    """Applies JWTs to the accounts and clients of a server. Made before the server's accounts.

    `sessions` are the server's clients by id. `options` returns the server's current options.
    `limits_changed` is called for each account that is updated, whose JetStream limits may have changed.
    `spawn` runs a coroutine as a task.
    """

    def __init__(
        self,
        opts: "Options",
        sessions: "Mapping[int, Session]",
        log: "Logger",
        *,
        options: "Callable[[], Options]",
        limits_changed: "Callable[[Account], None]",
        spawn: Spawn,
    ) -> None:
        self._opts = opts
        self._clients = sessions
        self._log = log
        self._options = options
        self._limits_changed = limits_changed
        self._spawn = spawn
        self.accounts: Accounts
        """The server's accounts, set before start()."""
        self._events: Events | None = None
        """None until serve()."""
        self.mode = OperatorMode(opts, None, self, log)
        self.others = OtherServers()
        self._activations: dict[str, Timer] = {}
        """By importing account, the timer for the first activation token that expires."""
        self._failed: set[str] = set()
        """Accounts with an import that failed, in the present update."""

    async def start(self) -> None:
        """Make and start the resolver, and build the system account. Raises ServerError."""
        mode = self.mode
        operators = mode.operators
        self._announce()
        url = operators[0].nats.account_server_url if len(operators) == 1 else ""
        try:
            mode.resolver = build_resolver(self._opts, url, self._log, self.others)
        except ResolverError as exc:
            raise ServerError(str(exc)) from None
        if isinstance(mode.resolver, DirectoryResolver):
            mode.resolver.host = mode
        await mode.start()

    def _announce(self) -> None:
        log, operators = self._log, self.mode.operators
        if operators:
            log.notice("Trusted Operators")
        for operator in operators:
            log.notice(f"  System  : {quote(operator.aud)}")
            log.notice(f"  Operator: {quote(operator.name)}")
            log.notice(f"  Issued  : {_time(operator.iat)}")
            log.notice(f"  Expires : {_time(operator.exp) if operator.exp else 'Never'}")
        if operators and not self.mode.system_account:
            log.warn("Trusted Operators should utilize a System Account")

    def serve(self, client: InternalClient, events: "Events", replies: "Replies", others: Sized) -> None:
        """Answer requests about JWTs, with a client of the system account; ask the `others` for JWTs."""
        self.others.replies, self.others.known = replies, others
        self._events = events
        ClaimsServices(self._spawn, self._log, self.mode, client, events)

    async def reload(self, opts: "Options") -> None:
        """Apply the options about JWTs, and read the JWTs again. Raises ServerError."""
        await self.mode.reload(opts.resolver_preload)
        self.mode.sentinel = opts.default_sentinel

    async def close(self) -> None:
        """Stop timers and the resolver."""
        for timer in self._activations.values():
            timer.cancel()
        self._activations.clear()
        await self.mode.close()

    # -- accounts (AccountsHook) -----------------------------------------------------------------------------

    def update_accounts(self, accounts: Sequence[ClaimAccount]) -> None:
        """Build these accounts or change them in place, and update their clients."""
        self._failed.clear()
        for claim in accounts:
            self._disarm(claim.name)
        affected = self.accounts.update_claims([claim.config() for claim in accounts])
        for name in affected:
            if known := self.mode.accounts.get(name):
                known.incomplete = name in self._failed
        for claim in accounts:
            account = self.accounts[claim.name]
            account.name_tag = claim.claims.name or claim.name
            if not claim.removed:  # else expire_account() closes them, with its own error
                self._update_clients(claim, account)
            self._limits_changed(account)

    def _update_clients(self, claim: ClaimAccount, account: "Account") -> None:
        for session in close_over_maximum(account, self._clients, self._log):
            if isinstance(session.grant.user, JWTUser):
                self._update_client(session, session.grant.user, claim)

        for leaf in self._leafs(account):
            if isinstance(leaf.grant.user, JWTUser):
                self._evicts(leaf, leaf.grant.user)

    def _evicts(self, session: "Session", user: JWTUser) -> bool:
        """Close a connection whose user may not be connected any more; return whether it was."""
        eviction, log = self.mode.recheck(user), self._log
        if eviction is None:
            return False
        if eviction.err == "Authorization Violation":
            auth_violation(session, log, self._events)
            return True
        if eviction.err:
            session.rate_limit(log, "DBG", eviction.err)
        session.close(log, eviction.reason, eviction.err or None)
        return True

    def _update_client(self, session: "Session", user: JWTUser, claim: ClaimAccount) -> None:
        client, opts, log = session.client, self._options(), self._log
        if self._evicts(session, user) or client is None:
            return
        max_subs, max_payload = limits(session, opts)
        client.set_limits(
            max_control_line=opts.max_control_line,
            max_payload=max_payload,
            max_subs=max_subs,
            ping_interval=opts.ping_interval,
            ping_max=opts.ping_max,
        )
        if 0 <= max_subs <= session.snapshot()["subscriptions"]:
            error = "maximum subscriptions exceeded"
            session.rate_limit(log, "ERR", error)
            session.close(log, ClosedState.MAX_SUBSCRIPTIONS_EXCEEDED, error)
        elif user.uses_default_permissions and user.permissions != claim.default_permissions:
            changed = replace(user, permissions=claim.default_permissions)
            session.grant = replace(
                session.grant, user=changed, permissions=granted_permissions(changed, claim)
            )
            client.set_permissions(permissions_of(session, log))

    def expire_account(self, account: ClaimAccount) -> None:
        """Close the account's clients with "Account Authentication Expired"."""
        for session in self._sessions(account.name):
            error = "Account Authentication Expired"
            session.rate_limit(self._log, "DBG", error)
            session.close(self._log, ClosedState.AUTHENTICATION_EXPIRED, error)

    def forget_account(self, account: ClaimAccount) -> None:
        """Close the account's clients with "Authorization Violation", and delete the account."""
        sessions = self._sessions(account.name)
        self._disarm(account.name)
        self.accounts.forget(account.name)
        for session in sessions:
            auth_violation(session, self._log, self._events)

    def _sessions(self, name: str) -> "list[Session]":
        account = self.accounts.get(name)
        if account is None:
            return []
        return [self._clients[cid] for cid in account.clients] + self._leafs(account)

    @staticmethod
    def _leafs(account: "Account") -> "list[Session]":
        return cast("list[Session]", list(account.leafs.values()))

    # -- exports and imports ---------------------------------------------------------------------------------

    def complain(self, name: str, what: str, why: str) -> None:
        """Log that an account's import or export failed, and note a failed import (Complain)."""
        if what.endswith("import"):
            self._failed.add(name)
        claim = self.mode.accounts.get(name)
        self._log.debug(f"Error adding {what} to account [{claim or name}]: {why}")

    def check_activation(
        self, importer: str, exporter: str, item: StreamImport | ServiceImport, export: str
    ) -> bool:
        """Whether the import's token is valid now (CheckActivation). Sets a timer for its expiry."""
        ends = self.mode.check_activation(exporter, item, export)
        if ends:
            wait = max(0.0, ends - unix_time())
            before = self._activations.get(importer)
            if before is None or wait < seconds_until(before):
                self._disarm(importer)
                self._activations[importer] = call_later(wait, self._activation_expired, importer)
        return ends is not None

    def _activation_expired(self, importer: str) -> None:
        del self._activations[importer]
        self.accounts.refresh([importer])

    def _disarm(self, name: str) -> None:
        if timer := self._activations.pop(name, None):
            timer.cancel()


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %z %Z")
