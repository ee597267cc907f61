"""The full and the cache resolver (accounts.go): a directory of JWTs that a cluster's servers synchronise.

A full resolver has the JWTs of all accounts, answers look-ups and packs, and asks the other servers every
`interval` seconds for JWTs that it lacks. A cache stores the JWTs that it fetched. (DirAccResolver,
CacheDirAccResolver) The server subscribes the system account to these subjects, and calls these methods:

    $SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE, $SYS.ACCOUNT.*.CLAIMS.UPDATE    account_update
    $SYS.REQ.CLAIMS.UPDATE                                           update
    $SYS.REQ.CLAIMS.LIST, $SYS.REQ.CLAIMS.DELETE                     list_accounts, delete_accounts
    $SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP (full)                          lookup
    $SYS.REQ.CLAIMS.PACK in the queue "responder" (full)             pack
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from math import inf

from gnats.clock import sleep
from gnats.go.text import quote
from gnats.jwt.account import AccountClaims
from gnats.jwt.token import JWTError, decode_as, decode_generic
from gnats.jwt.validation import validate
from gnats.nkeys.nkeys import Prefix, is_valid_public_key
from gnats.options.values.auth import ResolverOptions
from gnats.resolver.base import Host, Log, ResolverError, SystemRequests
from gnats.resolver.dirstore import Delete, DirStore
from gnats.resolver.requests import Reply, answer, failure

DEFAULT_CACHE_LIMIT = 1000
DEFAULT_SYNC_INTERVAL = 60.0
PACK_SUBJECT = "$SYS.REQ.CLAIMS.PACK"
LOOKUP_SUBJECT = "$SYS.REQ.ACCOUNT.{}.CLAIMS.LOOKUP"


class DirectoryResolver:
    """A full or a cache resolver, as `opts.kind` says. Set `host` before start()."""

    read_only = False
    tracks_updates = True

    def __init__(self, opts: ResolverOptions, log: Log, others: SystemRequests) -> None:
        """Raises ResolverError when the directory cannot be used."""
        self.kind = opts.kind
        self.host: Host | None = None
        full = opts.kind == "full"
        if full:
            delete = Delete.NO
            if opts.allow_delete:
                delete = Delete.HARD if opts.hard_delete else Delete.RENAME
            self.files = DirStore(opts.directory, delete=delete, limit=opts.limit or inf)
        else:
            self.files = DirStore(
                opts.directory,
                delete=Delete.HARD,
                limit=opts.limit if opts.limit > 0 else DEFAULT_CACHE_LIMIT,
                evict=True,
                ttl=opts.ttl,
            )
        self._is_full = full
        self._interval = opts.interval if opts.interval > 0 else DEFAULT_SYNC_INTERVAL
        self._timeout = opts.timeout
        self._log = log
        self._others = others
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        host = self._host()
        if not host.operator_keys:
            raise ResolverError("no operator key found")
        self._tasks.append(asyncio.create_task(self._every(self.files.expire_interval, self._expire)))
        if self._is_full:
            self._tasks.append(asyncio.create_task(self._every(self._interval, self.synchronize)))
        self._log.notice(
            f"Managing {'all' if self._is_full else 'some'} jwt in exclusive directory {self.files.directory}"
        )

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def fetch(self, account: str) -> str:
        """Load the JWT from the directory; else get it from another server, and store it."""
        token = self.files.load(account)
        if token:
            return token
        token = await self._fetch_from_others(account)
        await self.store(account, token)
        return token

    async def store(self, account: str, token: str) -> None:
        """Store a JWT unless the directory has it, or a newer one."""
        if self.files.save_if_newer(account, token):
            await self._changed(account, token)

    async def reload(self) -> None:
        """Read the directory again, and apply the JWTs that other processes have changed."""
        for account in self.files.reload():
            token = self.files.load(account)
            if token:
                await self._changed(account, token)

    async def synchronize(self) -> None:
        """Ask the other servers for JWTs that this directory lacks."""
        ours = self.files.hash
        self._log.debug(f"DirResolver - Checking store state: {ours.hex()}")
        async with aclosing(self._others.request(PACK_SUBJECT, ours, self._interval)) as packs:
            async for pack in packs:
                if not pack:
                    self._log.debug(
                        f"DirResolver - Merging finished and resulting in: {self.files.hash.hex()}"
                    )
                    return
                await self.merge(pack)

    async def merge(self, pack: bytes) -> None:
        """Store the newer JWTs of another server's pack."""
        before = self.files.hash
        try:
            changed = self.files.merge(pack.decode("utf-8", "replace"))
        except ResolverError as exc:
            self._log.error(f"DirResolver - Merging resulted in error: {exc}")
            return
        self._log.debug(
            f"DirResolver - Merging succeeded and changed {before.hex()} to {self.files.hash.hex()}"
        )
        for account in changed:
            token = self.files.load(account)
            if token:
                await self._changed(account, token)

    # Requests

    async def account_update(self, account: str, payload: bytes) -> Reply:
        """Store an account's new JWT, from a request whose subject names the account."""
        return await self._update(payload, account)

    async def update(self, payload: bytes) -> Reply:
        """Store an account's new JWT."""
        return await self._update(payload, None)

    def lookup(self, account: str) -> bytes | None:
        """Return the JWT of an account; b"" if there is none; None: send no reply."""
        try:
            token = self.files.load(account)
        except ResolverError as exc:
            self._log.error(f"DirResolver - Error looking up account {quote(account)}: {exc}")
            return None
        if token is None:
            self._log.debug(f"DirResolver - Could not find account {quote(account)}")
        return (token or "").encode()

    async def pack(self, their_hash: bytes) -> list[bytes]:
        """Return the messages for a server whose JWTs have this hash; the last is empty."""
        ours = self.files.hash
        if their_hash == ours:
            self._log.debug(f"DirResolver - Pack request matches hash {ours.hex()}")
            return [b""]
        packed = await asyncio.to_thread(lambda: [each.encode() for each in self.files.pack()])
        self._log.debug(
            f"DirResolver - Pack request hash {their_hash.hex()} - finished responding with hash {ours.hex()}"
        )
        return [*packed, b""]

    async def list_accounts(self) -> Reply:
        """List the accounts in the directory."""
        accounts = await asyncio.to_thread(lambda: [each.partition("|")[0] for each in self.files.pack()])
        self._log.debug(f"list request responded with {len(accounts)} account ids")
        return {"data": accounts}

    def delete_accounts(self, payload: bytes) -> Reply:
        """Delete the accounts listed in a JWT that an operator key has self-signed."""
        host = self._host()
        subject = ""
        try:
            claims = decode_generic(payload.decode("utf-8", "replace"))
            subject = claims.sub
            accounts = self._accounts_to_delete(host, claims.iss, subject, claims.nats)
        except (JWTError, ResolverError) as exc:
            return failure(self._log, "", f"delete accounts request by {subject} failed", str(exc))
        errors = []
        for account in accounts:
            try:
                if self.files.delete(account):
                    host.account_removed(account)
            except ResolverError as exc:
                errors.append(str(exc))
        deleted = f"deleted {len(accounts) - len(errors)} accounts"
        if errors:
            return failure(self._log, "", f"{deleted}, failed for {len(errors)}", "\n".join(errors))
        return answer(self._log, "", deleted)

    def _accounts_to_delete(
        self, host: Host, issuer: str, subject: str, nats: dict[str, object]
    ) -> tuple[str, ...]:
        if not self.files.deletes:
            raise ResolverError("delete must be enabled in server config")
        if subject != issuer:
            raise ResolverError("not self signed")
        if issuer not in host.operator_keys:
            raise ResolverError("not trusted")
        listed = nats.get("accounts")
        if not isinstance(listed, list):
            raise ResolverError("malformed request")
        for account in listed:
            if not isinstance(account, str) or not is_valid_public_key(account, Prefix.ACCOUNT):
                raise ResolverError("malformed request")
            if account == host.system_account:
                raise ResolverError("not allowed to delete system account")
        return tuple(listed)

    async def _update(self, payload: bytes, account: str | None) -> Reply:
        host, log = self._host(), self._log
        cache = "" if self._is_full else " cache"
        went_wrong = f"jwt update{cache} resulted in error"
        token = payload.decode("utf-8", "replace")
        try:
            claims = decode_as(AccountClaims, token)
        except JWTError as exc:
            named = account if account is not None and cache else "n/a"
            return failure(log, named, went_wrong, str(exc))
        invalid = "jwt update cache validation failed" if cache else "jwt validation failed"
        issues = validate(claims)
        problem = f"validation errors: [{' '.join(issues.errors)}]" if issues.errors else ""
        if problem and account is not None and not cache:
            return failure(log, claims.sub, invalid, problem)
        if account not in (None, claims.sub):
            return failure(log, account or "", went_wrong, "subject does not match jwt content")
        if claims.iss == host.operator and host.strict:
            return failure(log, claims.sub, went_wrong, "operator requires issuer to be a signing key")
        if cache and not host.knows(claims.sub):
            return answer(log, claims.sub, "jwt update cache skipped")
        if problem:
            return failure(log, claims.sub, invalid, problem)
        try:
            if self.files.save(claims.sub, token):
                await self._changed(claims.sub, token)
        except ResolverError as exc:
            return failure(log, claims.sub, went_wrong, str(exc))
        return answer(log, claims.sub, f"jwt updated{cache}")

    # Fetching and background tasks

    async def _fetch_from_others(self, account: str) -> str:
        """Return the first JWT that another server sends.

        Raises ResolverError when all known servers have answered without one, or after the time-out.
        """
        waiting = self._others.expected_servers()
        subject = LOOKUP_SUBJECT.format(account)
        async with aclosing(self._others.request(subject, b"", self._timeout)) as replies:
            async for reply in replies:
                if reply:
                    return reply.decode("utf-8", "replace")
                waiting -= 1
                if waiting <= 0:
                    raise ResolverError("account jwt not found")
        raise ResolverError("fetching jwt timed out")

    async def _changed(self, account: str, token: str) -> None:
        if self.host is not None:
            await self.host.account_changed(account, token)

    async def _expire(self) -> None:
        self.files.expire()

    async def _every(self, interval: float, what: Callable[[], Awaitable[None]]) -> None:
        while True:
            await sleep(interval)
            try:
                await what()
            except ResolverError as exc:
                self._log.error(f"DirResolver - {exc}")

    def _host(self) -> Host:
        assert self.host is not None, "a DirectoryResolver needs its host"
        return self.host
