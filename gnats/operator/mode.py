"""Operator mode: JWTs define users and accounts; operators that the server trusts have signed them.

Ports the JWT part of processClientOrLeafAuthentication in auth.go, and the parts of accounts.go and server.go
that fetch, verify and update accounts. A server makes one OperatorMode when its options have trusted
operators or keys. It awaits `start` before it listens, and calls `authenticate` at each CONNECT. OperatorMode
calls AccountsHook to build and change the server's accounts. Everything runs in the event loop.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from gnats.auth.account_jwt import AccountError, ClaimAccount
from gnats.auth.user_jwt import Attempt, Authentication, Eviction, Refused
from gnats.client.grant import JWTUser
from gnats.clock import Timer, call_later, monotonic, sleep, unix_time
from gnats.connection.closed_state import ClosedState
from gnats.connection.connect_options import ClientOptions
from gnats.errors import ServerError
from gnats.go.text import duration_of, quote
from gnats.jwt.account import AccountClaims, is_revoked
from gnats.jwt.claims import ActivationClaims
from gnats.jwt.token import JWTError, decode_as
from gnats.jwt.validation import validate
from gnats.nkeys.nkeys import Prefix, is_valid_public_key
from gnats.options.operators import decode_operators, system_account
from gnats.options.options import Options
from gnats.options.values.accounts import ServiceImport, StreamImport
from gnats.resolver.base import Log, Resolver, ResolverError
from gnats.resolver.requests import Reply, answer, failure

_TOO_SOON = 1.0
"""Seconds after an update of an account in which the resolver is not asked for it again."""
_SLOW_FETCH = 1.0
_BOOTSTRAP_INTERVAL = 1.0


class AccountsHook(Protocol):
    """The server's reactions to changes of accounts."""

    def update_accounts(self, accounts: Sequence[ClaimAccount]) -> None:
        """Build these accounts from their `config()`, or change them in place.

        All accounts that they import from are known or among them. Their clients get the new limits and
        default permissions, or are closed when `OperatorMode.recheck` returns an Eviction.
        """

    def expire_account(self, account: ClaimAccount) -> None:
        """Close the account's clients with "Account Authentication Expired"."""

    def forget_account(self, account: ClaimAccount) -> None:
        """Close the account's clients with "Authorization Violation", and delete the account."""


class OperatorMode:
    """The known accounts, and the checks of their users."""

    def __init__(self, opts: Options, resolver: Resolver | None, hook: AccountsHook, log: Log) -> None:
        """`opts` must have passed gnats.options.operators.validate_trust()."""
        self.operators = decode_operators(opts)
        self.system_account = system_account(opts, self.operators)
        self.trusted_keys = frozenset(opts.trusted_keys) | {
            key for operator in self.operators for key in operator.keys
        }
        self.accounts: dict[str, ClaimAccount] = {}
        self.resolver = resolver
        self.pinned_failures = 0
        """Users refused because their account is not pinned (varz)."""
        self._strict_keys = {
            key
            for operator in self.operators
            if operator.nats.strict_signing_key_usage
            for key in operator.nats.signing_keys or ()
        }
        self.sentinel = opts.default_sentinel
        self._pinned: frozenset[str] | None = None
        if opts.resolver_pinned_accounts:
            self._pinned = opts.resolver_pinned_accounts | {self.system_account}
        self._preload = opts.resolver_preload
        self._hook = hook
        self._log = log
        self._fetches: dict[str, asyncio.Task[tuple[AccountClaims, str]]] = {}
        self._timers: dict[str, Timer] = {}
        self._awaited: dict[str, set[str]] = {}
        """By account that could not be found: the accounts that import from it."""
        self._bootstrap: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Preload and start the resolver, and build the system account.

        Raises ServerError when the resolver or a preloaded JWT cannot be used.
        """
        if self.resolver is None:
            return
        try:
            await self._preload_accounts(self.resolver)
            await self.resolver.start()
        except ResolverError as exc:
            raise ServerError(str(exc)) from None
        if not self.system_account:
            return
        try:
            await self.lookup_account(self.system_account)
        except AccountError as exc:
            if self.resolver.kind == "mem" or len(self.operators) != 1:
                raise ServerError(f"Can't set system account: {exc}") from None
            self._log.notice("Using bootstrapping system account")
            account = ClaimAccount(self.system_account, self.operators[0].iss)
            self.accounts[account.name] = account
            self._hook.update_accounts([account])
            self._bootstrap = asyncio.create_task(self._fetch_system_account(account))

    async def reload(self, preload: dict[str, str]) -> None:
        """Apply the preloaded JWTs of a reloaded configuration.

        With a memory resolver, accounts that it no longer has are deleted; a directory is read again. Raises
        ServerError when a JWT is invalid.
        """
        resolver = self.resolver
        if resolver is None:
            return
        self._preload = preload
        try:
            await resolver.reload()
            await self._preload_accounts(resolver)
        except ResolverError as exc:
            raise ServerError(str(exc)) from None
        if resolver.kind != "mem":
            return
        for account in list(self.accounts.values()):
            try:
                _, token = await self._fetch(account.name)
                await self.update_account_with_claim_jwt(account, token)
            except AccountError:
                self._log.notice(f"Reloaded: deleting account [removed]: {quote(account.name)}")
                self._disarm(account.name)
                del self.accounts[account.name]
                self._hook.forget_account(account)

    async def close(self) -> None:
        """Stop timers and the resolver."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = [*self._fetches.values(), *([self._bootstrap] if self._bootstrap else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.resolver is not None:
            await self.resolver.close()

    async def _preload_accounts(self, resolver: Resolver) -> None:
        if self._preload and resolver.read_only:
            raise ResolverError(
                "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR"
            )
        decoded = {}
        for name, token in self._preload.items():
            try:
                decoded[name] = decode_as(AccountClaims, token)
            except JWTError as exc:  # raise before any of them is stored
                raise ResolverError(f"preload account error for {quote(name)}: {exc}") from None
        for name, claims in decoded.items():
            issues = validate(claims)
            if issues.is_blocking(time_checks=True):
                self._log.warn(f"Account [{name}] has validation issues:")
                for issue in issues.issues:
                    self._log.warn(f"  - {issue.description}")
            try:
                await resolver.store(name, self._preload[name])
            except ResolverError as exc:
                self._log.error(f"Preloaded account [{name}] not stored: {exc}")

    async def _fetch_system_account(self, account: ClaimAccount) -> None:
        """Ask the resolver for the system account's JWT every second, until it is found."""
        assert self.resolver is not None
        while not account.token:
            await sleep(_BOOTSTRAP_INTERVAL)
            try:
                token = await self.resolver.fetch(account.name)
                await self.update_account_with_claim_jwt(account, token)
            except (ResolverError, AccountError, JWTError):
                continue
        self._log.notice("System account fetched and updated")

    # The server as its resolver sees it (gnats.resolver.base.Host)

    @property
    def operator(self) -> str:
        """The public key of the first operator, "" when the options name only trusted keys."""
        return self.operators[0].sub if self.operators else ""

    @property
    def operator_keys(self) -> frozenset[str]:
        """The keys of the first operator that may sign accounts, and order deletions."""
        return frozenset(self.operators[0].keys) if self.operators else frozenset()

    @property
    def strict(self) -> bool:
        return bool(self.operators) and self.operators[0].nats.strict_signing_key_usage

    def knows(self, account: str) -> bool:
        """Whether this server uses the account."""
        return account in self.accounts

    async def account_changed(self, name: str, token: str) -> None:
        """Apply an account's new JWT, which the resolver has received. Logs errors."""
        account = self.accounts.get(name)
        if account is None:
            return
        try:
            await self.update_account_with_claim_jwt(account, token)
        except (AccountError, JWTError) as exc:
            self._log.error(f"DirResolver - Update for account {quote(name)} resulted in error {exc}")

    def account_removed(self, name: str) -> None:
        """Disable an account whose JWT the resolver has deleted (removeCb in accounts.go)."""
        account = self.accounts.get(name)
        if account is None:
            return
        self._log.debug(f"Disable account {name} due to remove")
        self._disarm(name)
        account.remove()
        self._hook.update_accounts([account])
        self._hook.expire_account(account)

    # Accounts

    async def lookup_account(self, name: str) -> ClaimAccount:
        """Return the account with a public key; fetch its JWT when it is unknown or has expired.

        Raises AccountError.
        """
        account = self.accounts.get(name)
        if account is None:
            claims, token = await self._fetch_account_claims(name)
            account = self.accounts.get(name)  # another fetch may have registered it meanwhile
            if account is None:
                account = ClaimAccount(name, claims.iss)
                await self._apply(account, claims, token)
                return self.accounts[name]
        if account.is_expired:
            self._log.debug(f"Requested account [{name}] has expired")
            try:
                await self._update_account(account)
            except (AccountError, JWTError):
                raise AccountError("account expired") from None
        return account

    async def _update_account(self, account: ClaimAccount) -> None:
        if not account.incomplete and monotonic() - account.updated < _TOO_SOON:
            self._log.debug(f"Requested account update for [{account.name}] ignored, too soon")
            raise AccountError("account resolver update too soon")
        token = await self._fetch_raw_account_claims(account.name)
        await self.update_account_with_claim_jwt(account, token)

    async def update_account_with_claim_jwt(self, account: ClaimAccount, token: str) -> None:
        """Check a new JWT of an account, and apply it.

        Raises JWTError for a malformed JWT, AccountError for one that is not valid for the account.
        """
        if account.token == token and not account.incomplete:
            self._log.debug(f"Requested account update for [{account.name}], same claims detected")
            return
        claims = self.verify_account_claims(token)
        if claims.sub != account.name:
            raise AccountError("account validation failed")
        await self._apply(account, claims, token)

    def verify_account_claims(self, token: str) -> AccountClaims:
        """Return the claims of an account's JWT, which must be valid now and signed by a trusted key.

        Raises JWTError, AccountError.
        """
        claims = decode_as(AccountClaims, token)
        if claims.iss not in self.trusted_keys or validate(claims).is_blocking(time_checks=True):
            raise AccountError("account validation failed")
        return claims

    async def _fetch_raw_account_claims(self, name: str) -> str:
        if self.resolver is None:
            raise AccountError("account resolver missing")
        start = monotonic()
        try:
            if not is_valid_public_key(name, Prefix.ACCOUNT):
                raise ResolverError("will only fetch valid account keys")
            token = await self.resolver.fetch(name)
        except ResolverError as exc:
            self._log.warn(f"Account fetch failed: {exc}")
            raise AccountError(str(exc)) from None
        took = monotonic() - start
        log = self._log.warn if took > _SLOW_FETCH else self._log.debug
        log(f"Account [{name}] fetch took {duration_of(took)}")
        return token

    async def _fetch_account_claims(self, name: str) -> tuple[AccountClaims, str]:
        """Fetch an account's JWT; return its verified claims and the JWT. Joins a fetch under way."""
        task = self._fetches.get(name)
        if task is None:
            task = self._fetches[name] = asyncio.create_task(self._fetch(name))
            task.add_done_callback(lambda _: self._fetches.pop(name, None))
        return await asyncio.shield(task)

    async def _fetch(self, name: str) -> tuple[AccountClaims, str]:
        token = await self._fetch_raw_account_claims(name)
        try:
            claims = self.verify_account_claims(token)
        except JWTError as exc:
            raise AccountError(str(exc)) from None
        if claims.sub != name:
            raise AccountError("account validation failed")
        return claims, token

    async def _apply(self, account: ClaimAccount, claims: AccountClaims, token: str) -> None:
        """Update an account, and build it together with unknown accounts that it imports from.

        So accounts that import from each other become known at the same time.
        """
        found: dict[str, tuple[ClaimAccount, AccountClaims, str]] = {account.name: (account, claims, token)}
        todo, missing = [claims], set()
        while todo:
            importing = todo.pop()
            for imported in importing.nats.imports:
                name = imported.account
                if name in found or name in self.accounts or name in missing:
                    continue
                try:
                    found[name] = (ClaimAccount(name, ""), *await self._fetch_account_claims(name))
                except AccountError as exc:
                    self._log.error(
                        f"Can't locate account [{name}] for import of"
                        f" [{imported.subject}] {imported.type} (err={exc})"
                    )
                    missing.add(name)
                else:
                    todo.append(found[name][1])
        changed = [self._register(*each) for each in found.values()]
        for importer in {name for each in changed for name in self._awaited.pop(each.name, ())}:
            again = self.accounts[importer]
            if again not in changed:
                again.incomplete = False
                changed.append(again)
        self._note_missing(changed, missing)
        self._hook.update_accounts(changed)
        for each in changed:
            self._arm(each)

    def _register(self, account: ClaimAccount, claims: AccountClaims, token: str) -> ClaimAccount:
        # Another fetch may have registered the account meanwhile.
        account = self.accounts.setdefault(account.name, account)
        self._log.debug(f"Updating account claims: {account.name}/{claims.name}")
        account.update(claims, token, strict=claims.iss in self._strict_keys)
        account.incomplete = False
        return account

    def _note_missing(self, accounts: list[ClaimAccount], missing: set[str]) -> None:
        for account in accounts:
            for name in missing.intersection(account.imported_accounts):
                self._awaited.setdefault(name, set()).add(account.name)
                account.incomplete = True

    def _arm(self, account: ClaimAccount) -> None:
        """Set the timer that closes the account's clients when it expires."""
        self._disarm(account.name)
        if account.claims.exp and not account.removed:
            delay = max(0.0, account.claims.exp - unix_time())
            self._timers[account.name] = call_later(delay, self._hook.expire_account, account)

    def _disarm(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    # Users

    async def authenticate(
        self,
        connect: ClientOptions,
        nonce: str,
        remote_ip: str,
        connection_type: str,
        *,
        trusted_proxy: bool = False,
    ) -> Authentication:
        """Check a client's CONNECT, whose signature is over `nonce`.

        `connection_type` is one of CONNECTION_TYPES. When the client sends no JWT, the default sentinel, or
        the password of an MQTT client, becomes its `connect.jwt`.
        """
        attempt = Attempt(self, connect, nonce, remote_ip, connection_type, trusted_proxy)
        try:
            user = await attempt.run()
        except Refused as exc:
            return Authentication(
                None, str(exc), exc.level, exc.reason, account=attempt.account, claims=attempt.claims
            )
        assert attempt.account is not None
        return Authentication(user, attempt.describe(user), account=attempt.account, claims=attempt.claims)

    def is_pinned(self, account: str) -> bool:
        """Whether users of the account may connect to this server; counts refusals."""
        if self._pinned is None or account in self._pinned:
            return True
        self.pinned_failures += 1
        return False

    def recheck(self, user: JWTUser) -> Eviction | None:
        """Check a connected user after a change of its account; None: it may stay."""
        account = self.accounts[user.account]
        nats = account.claims.nats
        if user.bearer and nats.limits.disallow_bearer:
            return Eviction(ClosedState.AUTHENTICATION_VIOLATION, "Authorization Violation")
        if nats.revocations and (
            not user.issued_at or is_revoked(nats.revocations, user.user, user.issued_at)
        ):
            return Eviction(ClosedState.REVOCATION, "User Authentication Revoked")
        key = user.signing_key
        if key and (key not in account.signing_keys or account.signing_keys[key] != user.scope):
            return Eviction(ClosedState.AUTHENTICATION_VIOLATION, "")
        return None

    def check_activation(
        self, exporter: str, imported: StreamImport | ServiceImport, export_subject: str
    ) -> int | None:
        """Check that an import's activation token is valid now for the export of `export_subject`.

        Returns the unix time at which it expires, 0 for never; None when it is not valid. The check of the
        importer's JWT has verified that the token is the importer's, and for that subject. (checkActivation)
        """
        account = self.accounts.get(exporter)
        if account is None or not imported.token:
            return None
        try:
            activation = decode_as(ActivationClaims, imported.token)
        except JWTError:
            return None
        by = activation.nats.issuer_account
        if by and (by != exporter or activation.iss not in account.signing_keys):
            return None
        if validate(activation).is_blocking(time_checks=True) or 0 < activation.exp <= unix_time():
            return None
        export = account.export(activation.nats.kind, export_subject)
        if export is not None and is_revoked(export.revocations, activation.sub, activation.iat):
            return None
        return activation.exp

    async def account_claim_update(self, name: str, payload: bytes) -> Reply:
        """Answer $SYS.REQ.ACCOUNT.<name>.CLAIMS.UPDATE, with a resolver that does not (memory and URL).

        Returns the reply with `data` or `error`; the caller adds `server`.
        """
        if not payload:
            return failure(self._log, name, "jwt update error", "request body is empty")
        token = payload.decode("utf-8", "replace")
        try:
            claims = decode_as(AccountClaims, token)
            if claims.sub != name:
                raise AccountError("subject does not match jwt content")
            account = self.accounts.get(name)
            if account is None:
                return answer(self._log, name, "jwt update skipped")
            await self.update_account_with_claim_jwt(account, token)
        except (JWTError, AccountError) as exc:
            return failure(self._log, name, "jwt update resulted in error", str(exc))
        return answer(self._log, name, "jwt updated")
