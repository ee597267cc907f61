"""JetStream of a server: start and end, resources, accounts, background syncs (jetstream.go)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gnats.clock import sleep, timeout
from gnats.core.subjects.subjecttrie import Stopped
from gnats.errors import ServerError
from gnats.go.json import Json
from gnats.go.text import friendly_bytes
from gnats.jetstream import errors
from gnats.jetstream.control.cluster_usage import ClusterUsage
from gnats.jetstream.control.jsaccount import JSAccount, difference
from gnats.jetstream.control.lanes import Hold, Lanes, account_claim, creation_claims
from gnats.jetstream.control.recovery import recover
from gnats.jetstream.control.shared import Group, Shared
from gnats.jetstream.errors import ApiError
from gnats.jetstream.settings.reservations import Resources
from gnats.options.values.jetstream import JetStreamConfig, JetStreamOptions, make_directory
from gnats.options.values.limits import JSLimitOpts, Tiers
from gnats.raft.files import FilesError
from gnats.runtime.steps import in_slices
from gnats.version import JS_API_LEVEL

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.accounts.accounts import Accounts
    from gnats.jetstream.cluster.meta import Change
    from gnats.jetstream.cluster.nodes import Nodes
    from gnats.jetstream.control.metagroup import MetaGroup
    from gnats.log.logger import Logger

SNAPSHOTS_AT_ONCE = 16
"""Snapshots that a server makes at the same time; later ones wait."""
HAND_OVER = 1.0
"""Most seconds to wait for the next leaders of groups that this server has led."""

_BANNER = (
    "    _ ___ _____ ___ _____ ___ ___   _   __  __",
    " _ | | __|_   _/ __|_   _| _ \\ __| /_\\ |  \\/  |",
    "| || | _|  | | \\__ \\ | | |   / _| / _ \\| |\\/| |",
    " \\__/|___| |_| |___/ |_| |_|_\\___/_/ \\_\\_|  |_|",
    "",
    "         https://docs.nats.io/jetstream",
    "",
)


class RequestApi(Protocol):
    """The API as JetStream sees it: an Api."""

    inflight: int
    """Requests that wait or are being carried out."""

    @property
    def waiting(self) -> tuple[int, int]:
        """The numbers of requests that wait; last those for information."""

    async def close(self) -> None:
        """Stop serving requests."""


class Part(Protocol):
    """This server's part of what a cluster has assigned: an Assigned."""

    def carry_out(self, changes: Iterable[Change]) -> None:
        """Carry out changes, behind those that wait."""

    async def wait(self) -> None:
        """Wait until nothing is left to do."""

    async def close(self) -> None:
        """Stop."""


class JetStream:
    """JetStream of a running server. Made by Server.enable_jetstream(); used from the loop's thread only.

    `server_accounts` are all accounts of the server, also those without JetStream. `spawn` runs a coroutine
    as a task until the server ends. `reserved` is called when streams have reserved or released bytes.
    """

    def __init__(
        self,
        shared: Shared,
        server_name: str,
        server_accounts: Accounts,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        reserved: Callable[[], object] | None = None,
    ) -> None:
        self.shared = shared
        self.cluster_info: dict[str, object] = {"leader": server_name}
        """The member `cluster` of the description of a stream."""
        if name := shared.options().cluster.name:
            self.cluster_info = {"name": name, **self.cluster_info}
        self.server_accounts = server_accounts
        self.config = config = shared.config
        self.domain = shared.domain
        self.keys = shared.keys
        self.log = shared.log
        self.usage = shared.usage
        self.advisories = shared.advisories
        self._spawn = spawn
        self.lanes = Lanes()
        self.accounts: dict[str, JSAccount] = {}
        self._resources = Resources(config.max_memory, config.max_store, reserved)
        self.api_total = self.api_errors = 0
        if config.options.sync_always:
            shared.engine.start_sync()
        shared.loop.add_reader(shared.engine.fileno(), shared.engine.run_timers)
        self._api: RequestApi | None = None
        self._part: Part | None = None
        self._meta: MetaGroup | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._enabling = asyncio.Lock()
        self.snapshots = asyncio.Semaphore(SNAPSHOTS_AT_ONCE)
        self._transfers: set[asyncio.Task[None]] = set()
        self._routes = 0
        self._links_changed: set[Callable[[], object]] = set()
        self._cluster_usage: ClusterUsage | None = None

    @property
    def cluster(self) -> MetaGroup | None:
        """What decides in a cluster which servers have which streams and consumers; None without one."""
        return self._meta

    def join(
        self,
        nodes: Nodes,
        routes: int,
        links_changed: set[Callable[[], object]],
        removed: Callable[[], object],
    ) -> None:
        """Be a member of a JetStream cluster from start() on.

        `routes` is the number of other servers that the configuration names. `links_changed` are called when
        the connections to them change. `removed` is called when
        the cluster has removed this server: it must disable JetStream.
        """
        from gnats.jetstream.control.metagroup import MetaGroup

        self._meta = MetaGroup(self.shared, nodes, nodes.peer, self._carry_out, removed)
        self.shared.forget_consumer = self._meta.forget_consumer
        self.shared.cluster_info = self.cluster_info
        self._routes = routes
        self._links_changed = links_changed
        nodes.changed.append(self._begin_group)

    def _carry_out(self, changes: Iterable[Change]) -> None:
        assert self._part
        self._part.carry_out(changes)

    def _begin_group(self, peer: str) -> None:
        """Take part in the meta group: another server can be reached."""
        if self._meta:
            self._meta.begin()

    # -- resources -------------------------------------------------------------------------------------------

    @property
    def max_memory(self) -> int:
        return self.config.max_memory

    @property
    def max_store(self) -> int:
        return self.config.max_store

    def set_limits(self, max_memory: int, max_store: int) -> None:
        """Set the limits of memory and storage (bytes), after a reload."""
        self.config.max_memory, self.config.max_store = max_memory, max_store
        self._resources.max_memory, self._resources.max_store = max_memory, max_store
        self.usage.max_memory, self.usage.max_storage = max_memory, max_store

    def set_stream_limits(self, limits: JSLimitOpts) -> None:
        """Set the limits of each stream and consumer, after a reload. Existing ones stay as they are."""
        self.shared.set_stream_limits(limits)
        for jsa in self.accounts.values():
            for stream in jsa.streams.values():
                stream.look_at_batches()

    def check_resources(self, limits: Tiers) -> None:
        """Raise ApiError unless the server can give an account these limits (sufficientResources)."""
        memory, store = _maxima(limits)
        mine = [_maxima(jsa.limits) for jsa in self.accounts.values()]
        for taken in (self._resources.memory_reserved, sum(memory for memory, _ in mine)):
            if taken + memory > self.max_memory:
                raise errors.MEMORY_RESOURCES_EXCEEDED()
        for taken in (self._resources.store_reserved, sum(store for _, store in mine)):
            if taken + store > self.max_store:
                raise errors.STORAGE_RESOURCES_EXCEEDED()

    def count_request(self, account: Account, *, failed: bool) -> None:
        """Count an answered request to the API."""
        if jsa := self.accounts.get(account.name):
            jsa.api_total += 1
            jsa.api_errors += failed
            self.api_total += 1
            self.api_errors += failed

    def stats(self) -> dict[str, Any]:
        """Return the use and the reservations of the server's resources (JetStreamStats)."""
        api: dict[str, int] = {"level": JS_API_LEVEL, "total": self.api_total, "errors": self.api_errors}
        if self._api and self._api.inflight:
            api["inflight"] = self._api.inflight
        return {
            "memory": max(self.usage.memory, 0),
            "storage": max(self.usage.storage, 0),
            "reserved_memory": self._resources.memory_reserved,
            "reserved_storage": self._resources.store_reserved,
            "accounts": len(self.accounts),
            "ha_assets": len(self.shared.groups),
            "api": api,
        }

    def meta_info(self, *, full: bool) -> Json | None:
        """Describe the meta group (MetaClusterInfo), its replicas if `full`; None without one."""
        if self._meta is None or self._api is None:
            return None
        return self._meta.info(full=full, waiting=self._api.waiting)

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self, serve_api: Callable[[], tuple[RequestApi, Part | None]]) -> None:
        """Serve the API and recover the streams of all accounts. Raises ServerError.

        `serve_api` makes the API, and in a cluster this server's part.
        """
        make_directory(Path(self.config.store_dir))
        self._banner()
        self._api, self._part = serve_api()
        log = self.log
        self._syncing = asyncio.create_task(self._sync_loop())
        log.debug("  Exports:")
        log.debug("     $JS.API.>")
        for account in list(self.server_accounts.values()):
            try:
                await self.configure_account(account)
            except ApiError as exc:
                raise ServerError(f"Error enabling jetstream on configured accounts: {exc}") from exc
        if self._meta:
            await self._start_cluster(self._meta)

    async def _start_cluster(self, meta: MetaGroup) -> None:
        """Recover what the cluster has assigned to this server. Raises ServerError."""
        account = self.server_accounts.system_account
        assert account and self._part
        try:
            await meta.start(account, self._routes)
        except (OSError, FilesError, MemoryError) as exc:
            raise ServerError(f"cannot open JetStream's meta group: {exc}") from exc
        self._part.carry_out(meta.recovered())
        await self._part.wait()
        self._share_usage(meta.nodes, account)
        if any(peer != meta.peer for peer in meta.nodes.active_peers()):
            meta.begin()

    def _share_usage(self, nodes: Nodes, system: Account) -> None:
        """Tell the other servers what accounts use here, and hear what they use there."""
        shared = self.shared
        self._cluster_usage = usage = ClusterUsage(
            shared.clients.new(system),
            nodes.peer,
            self.accounts.values,
            lambda: (shared.usage.memory, shared.usage.storage, self.api_total, len(self.accounts)),
            shared.elsewhere,
            self.log,
        )
        nodes.changed.append(usage.publish_again)
        self._links_changed.add(usage.publish_again)

    async def configure_accounts(self) -> None:
        """Apply the limits of all accounts again, and close JetStream of removed accounts. Logs errors."""
        for name in [name for name in self.accounts if name not in self.server_accounts]:
            async with self.changing_account(name):
                if jsa := self.accounts.pop(name, None):
                    await jsa.close()
        for account in list(self.server_accounts.values()):
            if (account.name in self.accounts) != (account.jetstream_limits is not None):
                async with self.changing_account(account.name):
                    await self.reconfigure(account)
            else:
                await self.reconfigure(account)

    async def reconfigure(self, account: Account) -> None:
        """Apply an account's limits again. Logs errors."""
        try:
            await self.configure_account(account)
        except Stopped:  # JetStream is shutting down
            return
        except ApiError as exc:
            self.log.error(f"Error configuring jetstream for account [{account.name}]: {exc}")

    def reconfigure_soon(self, account: Account) -> None:
        """Queue reconfigure() of an account; API requests that arrive later wait for it."""

        async def wait_and_reconfigure(hold: Hold, begun: asyncio.Event) -> None:
            try:
                await begun.wait()
                await self.reconfigure(account)
            finally:
                self.lanes.leave(hold)

        begun = asyncio.Event()
        hold = self.lanes.enter([account_claim(account.name, alone=True)], begun.set)
        self._spawn(wait_and_reconfigure(hold, begun))

    def changing_account(self, name: str) -> AbstractAsyncContextManager[None]:
        """Wait for all work in an account to end, and keep other work in it waiting."""
        return self.lanes.hold([account_claim(name, alone=True)])

    def changing_streams(self, account: str, stream: str) -> AbstractAsyncContextManager[None]:
        """Hold the lanes that making, changing or deleting a stream needs, without an API request."""
        return self.lanes.hold(creation_claims(account, stream))

    async def _sync_loop(self) -> None:
        """Sync all streams at every sync interval."""
        while True:
            await sleep(self.config.options.sync_interval)
            for jsa in list(self.accounts.values()):
                for stream in list(jsa.streams.values()):
                    await stream.sync()

    def _banner(self) -> None:
        log, config = self.log, self.config
        for line in (*_BANNER, "---------------- JETSTREAM ----------------"):
            log.notice(line)
        if config.options.strict:
            log.notice("  Strict:          true")
        log.notice(f"  Max Memory:      {friendly_bytes(config.max_memory)}")
        log.notice(f"  Max Storage:     {friendly_bytes(config.max_store)}")
        log.notice(f'  Store Directory: "{config.store_dir}"')
        if self.domain:
            log.notice(f"  Domain:          {self.domain}")
        log.notice(f"  API Level:       {JS_API_LEVEL}")
        log.notice("-------------------------------------------")

    async def configure_account(self, account: Account) -> None:
        """Enable JetStream for an account, change its limits, or disable it (configJetStream).

        Raises ApiError.
        """
        async with self._enabling:
            jsa, limits = self.accounts.get(account.name), account.jetstream_limits
            if account is self.server_accounts.system_account:
                return
            if limits is None:
                if jsa:
                    del self.accounts[account.name]
                    await jsa.close()
            elif jsa:
                self.check_resources(difference(jsa.limits, limits))
                jsa.set_limits(limits)
            else:
                self.check_resources(limits)
                jsa = self.accounts[account.name] = JSAccount(self.shared, self._resources, account, limits)
                jsa.log_limits()
                if self._meta is None:
                    await recover(jsa)
                elif self._part:
                    self._part.carry_out(self._meta.assigned(account.name))

    def reach_origins(self, account: Account) -> None:
        """Try at once what failed before: another server has connected this account, which may have the
        streams that its mirrors and sources copy (checkInternalSyncConsumers)."""

        async def reach(jsa: JSAccount) -> None:
            async for stream in in_slices(list(jsa.streams.values())):
                await stream.origins.reach()

        if jsa := self.accounts.get(account.name):
            self._spawn(reach(jsa))

    def signal_pull_consumers(self) -> None:
        """Answer all waiting pull requests: the server is shutting down."""
        for jsa in self.accounts.values():
            for stream in jsa.streams.values():
                for consumer in stream.consumers.values():
                    consumer.signal_shutdown()

    async def hand_over(self) -> None:
        """Have other servers lead the groups that this one leads, from now on (transferRaftLeaders).

        Return when the groups have leaders, or after HAND_OVER seconds.
        """
        waiting = self._retire()
        with suppress(TimeoutError):
            async with timeout(HAND_OVER):
                for group in waiting:
                    await group.led.wait()

    def _retire(self) -> list[Group]:
        self.shared.retires = True
        return [group for group in list(self.shared.groups) if group.retire()]

    async def close(self) -> None:
        """Stop the API and all streams. Stored data stays."""
        log = self.log
        log.notice("Initiating JetStream Shutdown...")
        self._retire()
        self.shared.overlaps.stop()
        if self._api:
            await self._api.close()
        if self._syncing:
            self._syncing.cancel()
        if self._part:
            await self._part.close()
        for task in self._transfers:
            task.cancel()
        if self._transfers:
            await asyncio.wait(self._transfers)
        if self._meta:
            self._meta.nodes.changed.remove(self._begin_group)
            if usage := self._cluster_usage:
                self._meta.nodes.changed.remove(usage.publish_again)
                self._links_changed.discard(usage.publish_again)
                usage.close()
            await self._meta.close()
        for jsa in self.accounts.values():
            await jsa.close()
        await self.shared.close()
        self.accounts.clear()
        log.notice("JetStream Shutdown")

    def transfer(self, work: Coroutine[None, None, None]) -> None:
        """Run a snapshot or a restore as a task; close() cancels it and waits for its end."""
        task = asyncio.create_task(work)
        self._transfers.add(task)
        task.add_done_callback(self._transferred)

    def _transferred(self, task: asyncio.Task[None]) -> None:
        self._transfers.discard(task)
        if not task.cancelled() and (exc := task.exception()):  # a bug
            self.log.error(f"JetStream backup failed: {exc!r}")


def _maxima(limits: Tiers) -> tuple[int, int]:
    return (
        sum(max(each.max_memory, 0) for each in limits.values()),
        sum(max(each.max_storage, 0) for each in limits.values()),
    )


def configure(options: JetStreamOptions, log: Logger) -> JetStreamConfig:
    """Choose the limits and directory that the options leave open (EnableJetStream). Raises ServerError."""
    config = JetStreamConfig.of(options)
    if options.max_memory <= 0 or options.max_store <= 0:
        memory, disk = friendly_bytes(config.max_memory), friendly_bytes(config.max_store)
        log.debug(f"JetStream creating dynamic configuration - {memory} memory, {disk} disk")
    if config.temporary:
        log.warn("Temporary storage directory used, data could be lost on system reboot")
    return config
