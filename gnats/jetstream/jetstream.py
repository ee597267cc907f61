"""JetStream of a server: what it has, whose accounts use it, its start and its end (jetstream.go)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnats.clock import sleep
from gnats.core.subjecttrie import Stopped
from gnats.errors import ServerError
from gnats.gofmt import duration, friendly_bytes
from gnats.jetstream import errors
from gnats.jetstream.advisories import Advisories
from gnats.jetstream.api import Api
from gnats.jetstream.batchtable import BatchLimits
from gnats.jetstream.config import MEMORY
from gnats.jetstream.encryption import Keys
from gnats.jetstream.engine import Engine
from gnats.jetstream.errors import ApiError
from gnats.jetstream.jsaccount import JSAccount
from gnats.jetstream.lanes import Lanes, Turn, account_claim, creation_claims
from gnats.jetstream.limits import JSLimitOpts, Tiers, limit_batches
from gnats.jetstream.options import JetStreamConfig, make_directory
from gnats.jetstream.overlaps import Overlaps
from gnats.jetstream.recovery import recover
from gnats.jetstream.snapshot import AT_ONCE
from gnats.jetstream.statewriter import StateWriter
from gnats.jetstream.threads import in_thread
from gnats.jetstream.usage import Usage
from gnats.version import JS_API_LEVEL

if TYPE_CHECKING:
    from gnats.account import Account
    from gnats.jetstream.consumer import Consumer as NativeConsumer
    from gnats.jetstream.consumers import Consumer
    from gnats.jetstream.sources import Origin
    from gnats.jetstream.streams import Stream
    from gnats.server import Server

_BANNER = (
    "    _ ___ _____ ___ _____ ___ ___   _   __  __",
    " _ | | __|_   _/ __|_   _| _ \\ __| /_\\ |  \\/  |",
    "| || | _|  | | \\__ \\ | | |   / _| / _ \\| |\\/| |",
    " \\__/|___| |_| |___/ |_| |_|_\\___/_/ \\_\\_|  |_|",
    "",
    "         https://docs.nats.io/jetstream",
    "",
)


class JetStream:
    """JetStream of a running server. Made by enable(); used from the loop's thread only."""

    def __init__(self, server: Server, config: JetStreamConfig) -> None:
        assert server.pollers is not None and server.system_account is not None
        self.server = server
        self.config = config
        self.domain = config.options.domain
        self.keys = Keys(config.options)
        self.lanes = Lanes()
        self.overlaps = Overlaps()
        self.accounts: dict[str, JSAccount] = {}
        self.memory_reserved = self.store_reserved = 0
        self.api_total = self.api_errors = 0
        self.advisories = Advisories(server, self.domain)
        self.usage = Usage(max_memory=config.max_memory, max_storage=config.max_store)
        self.batch_limits = BatchLimits()
        self.states = StateWriter()
        limit_batches(self.batch_limits, config.options.limits)
        self.engine = server.js_engine or _new_engine(server)
        server.js_engine = self.engine
        if config.options.sync_always:
            self.engine.start_sync()
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(self.engine.fileno(), self.engine.run_timers)
        self._api: Api | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._enabling = asyncio.Lock()
        self._owners: dict[int, Stream | Consumer | Origin] = {}
        self.snapshots = asyncio.Semaphore(AT_ONCE)
        self._transfers: set[asyncio.Task[None]] = set()
        self._forgetting: set[asyncio.Task[None]] = set()

    # -- resources -------------------------------------------------------------------------------------------

    @property
    def max_memory(self) -> int:
        return self.config.max_memory

    @property
    def max_store(self) -> int:
        return self.config.max_store

    def set_limits(self, max_memory: int, max_store: int) -> None:
        """Have more memory or storage, after a reload."""
        self.config.max_memory, self.config.max_store = max_memory, max_store
        self.usage.max_memory, self.usage.max_storage = max_memory, max_store

    def set_stream_limits(self, limits: JSLimitOpts) -> None:
        """Have other limits for each stream and consumer, after a reload: what is there stays as it is."""
        self.config.options = replace(self.config.options, limits=limits)
        limit_batches(self.batch_limits, limits)
        for jsa in self.accounts.values():
            for stream in jsa.streams.values():
                stream.look_at_batches()

    def reserve(self, storage: str, max_bytes: int) -> None:
        """Reserve resources for a stream, or with a negative number release them."""
        if storage == MEMORY:
            self.memory_reserved += max_bytes
        else:
            self.store_reserved += max_bytes

    def check_resources(self, limits: Tiers) -> None:
        """Raise ApiError where there is not as much as an account is to have (sufficientResources)."""
        memory, store = _maxima(limits)
        mine = [_maxima(jsa.limits) for jsa in self.accounts.values()]
        for taken in (self.memory_reserved, sum(memory for memory, _ in mine)):
            if taken + memory > self.max_memory:
                raise errors.MEMORY_RESOURCES_EXCEEDED()
        for taken in (self.store_reserved, sum(store for _, store in mine)):
            if taken + store > self.max_store:
                raise errors.STORAGE_RESOURCES_EXCEEDED()

    def count_request(self, account: Account, *, failed: bool) -> None:
        """A request to the API has been answered."""
        if jsa := self.accounts.get(account.name):
            jsa.api_total += 1
            jsa.api_errors += failed
            self.api_total += 1
            self.api_errors += failed

    def stats(self) -> dict[str, Any]:
        """What is used and reserved (JetStreamStats)."""
        api: dict[str, int] = {"level": JS_API_LEVEL, "total": self.api_total, "errors": self.api_errors}
        if self._api and self._api.inflight:
            api["inflight"] = self._api.inflight
        return {
            "memory": max(self.usage.memory, 0),
            "storage": max(self.usage.storage, 0),
            "reserved_memory": self.memory_reserved,
            "reserved_storage": self.store_reserved,
            "accounts": len(self.accounts),
            "ha_assets": 0,
            "api": api,
        }

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Serve the API and recover what accounts have stored. Raises ServerError."""
        make_directory(Path(self.config.store_dir))
        self._banner()
        assert self.server.system_account is not None
        self._api = Api(self, self.server.internal_client(self.server.system_account))
        log = self.server.log
        self._syncing = asyncio.create_task(self._sync_loop())
        log.debug("  Exports:")
        log.debug("     $JS.API.>")
        for account in list(self.server.accounts.values()):
            try:
                await self.configure_account(account)
            except ApiError as exc:
                raise ServerError(f"Error enabling jetstream on configured accounts: {exc}") from exc

    async def configure_accounts(self) -> None:
        """Look again at the limits of all accounts; what cannot be is logged."""
        for name in [name for name in self.accounts if name not in self.server.accounts]:
            async with self.changing_account(name):
                if jsa := self.accounts.pop(name, None):
                    await jsa.close()
        for account in list(self.server.accounts.values()):
            if (account.name in self.accounts) != (account.jetstream_limits is not None):
                async with self.changing_account(account.name):
                    await self.reconfigure(account)
            else:
                await self.reconfigure(account)

    async def reconfigure(self, account: Account) -> None:
        """Look again at an account's limits; what cannot be is logged."""
        try:
            await self.configure_account(account)
        except Stopped:  # so is the server
            return
        except ApiError as exc:
            self.server.log.error(f"Error configuring jetstream for account [{account.name}]: {exc}")

    def reconfigure_soon(self, account: Account) -> None:
        """Begin to look again at an account's limits; requests that come later wait for that."""

        async def wait_and_reconfigure(turn: Turn, begun: asyncio.Event) -> None:
            try:
                await begun.wait()
                await self.reconfigure(account)
            finally:
                self.lanes.leave(turn)

        begun = asyncio.Event()
        turn = self.lanes.enter([account_claim(account.name, alone=True)], begun.set)
        self.server.spawn(wait_and_reconfigure(turn, begun))

    def changing_account(self, name: str) -> AbstractAsyncContextManager[None]:
        """Wait until nothing else is done in an account; requests that come meanwhile wait."""
        return self.lanes.turn([account_claim(name, alone=True)])

    def changing_streams(self, account: str, stream: str) -> AbstractAsyncContextManager[None]:
        """Wait for the turn of somebody who makes, changes or deletes a stream without a request for it."""
        return self.lanes.turn(creation_claims(account, stream))

    async def _sync_loop(self) -> None:
        """Make durable what has been written, again and again."""
        while True:
            await sleep(self.config.options.sync_interval)
            for jsa in list(self.accounts.values()):
                for stream in list(jsa.streams.values()):
                    await stream.sync()

    def _banner(self) -> None:
        log, config = self.server.log, self.config
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
        """Give an account what its limits say, or take it away (configJetStream). Raises ApiError."""
        async with self._enabling:
            jsa, limits = self.accounts.get(account.name), account.jetstream_limits
            if account is self.server.system_account:
                return
            if limits is None:
                if jsa:
                    del self.accounts[account.name]
                    await jsa.close()
            elif jsa:
                jsa.set_limits(limits)
            else:
                self.check_resources(limits)
                jsa = self.accounts[account.name] = JSAccount(self, account, limits)
                jsa.log_limits()
                await recover(jsa)

    def signal_pull_consumers(self) -> None:
        """Tell all that wait for messages that the server stops."""
        for jsa in self.accounts.values():
            for stream in jsa.streams.values():
                for consumer in stream.consumers.values():
                    consumer.signal_shutdown()

    async def close(self) -> None:
        """Stop everything; what is stored stays."""
        log = self.server.log
        log.notice("Initiating JetStream Shutdown...")
        self.overlaps.stop()
        if self._api:
            await self._api.close()
        if self._syncing:
            self._syncing.cancel()
        for task in self._transfers:
            task.cancel()
        if self._transfers:
            await asyncio.wait(self._transfers)
        for jsa in self.accounts.values():
            await jsa.close()
        if self._forgetting:  # their streams have closed: they end
            await asyncio.wait(self._forgetting)
        await self.states.close()
        self.accounts.clear()
        self.loop.remove_reader(self.engine.fileno())
        log.notice("JetStream Shutdown")

    def transfer(self, work: Coroutine[None, None, None]) -> None:
        """Have a backup sent or taken, until it is done or JetStream is stopped."""
        task = asyncio.create_task(work)
        self._transfers.add(task)
        task.add_done_callback(self._transferred)

    def forget_unneeded(self, consumer: NativeConsumer) -> asyncio.Task[None]:
        """Have a stream remove, in a thread, what a consumer wanted that is gone, or filters others now."""
        task = asyncio.create_task(in_thread(consumer.forget_unneeded))
        self._forgetting.add(task)
        task.add_done_callback(self._forgotten)
        return task

    def _forgotten(self, task: asyncio.Task[None]) -> None:
        self._forgetting.discard(task)
        if not task.cancelled() and (exc := task.exception()):  # a bug
            self.server.log.error(f"JetStream cannot remove messages without interest: {exc!r}")

    def _transferred(self, task: asyncio.Task[None]) -> None:
        self._transfers.discard(task)
        if not task.cancelled() and (exc := task.exception()):  # a bug
            self.server.log.error(f"JetStream backup failed: {exc!r}")

    # -- what the data plane tells ---------------------------------------------------------------------------

    def register(self, native: object, owner: Stream | Consumer | Origin) -> None:
        """Have `owner` told what its native stream or consumer says."""
        self._owners[id(native)] = owner

    def unregister(self, native: object) -> None:
        """Undo register()."""
        self._owners.pop(id(native), None)

    def on_event(self, native: object, what: int, number: int, data: object) -> None:
        """A stream or a consumer has something to tell."""
        if owner := self._owners.get(id(native)):
            owner.on_event(what, number, data if isinstance(data, bytes) else b"")


def _new_engine(server: Server) -> Engine:
    assert server.pollers is not None
    pollers = list(server.pollers.all)
    return Engine(pollers, server.state, [server.next_cid() for _ in pollers])


def _maxima(limits: Tiers) -> tuple[int, int]:
    return (
        sum(max(each.max_memory, 0) for each in limits.values()),
        sum(max(each.max_storage, 0) for each in limits.values()),
    )


async def enable(server: Server) -> JetStream:
    """Start JetStream as the server's options say (EnableJetStream). Raises ServerError."""
    log, options = server.log, server.opts.jetstream
    log.notice("Starting JetStream")
    start = time.monotonic_ns()
    try:
        if server.system_account and server.system_account.jetstream_limits:
            raise ServerError("Not allowed to enable JetStream on the system account")
        config = JetStreamConfig.of(options)
        if options.max_memory <= 0 or options.max_store <= 0:
            memory, disk = friendly_bytes(config.max_memory), friendly_bytes(config.max_store)
            log.debug(f"JetStream creating dynamic configuration - {memory} memory, {disk} disk")
        if config.temporary:
            log.warn("Temporary storage directory used, data could be lost on system reboot")
        js = JetStream(server, config)
        server.jetstream = js
        await js.start()
        return js
    finally:
        log.notice(f"Took {duration(time.monotonic_ns() - start)} to start JetStream")


async def disable(server: Server) -> None:
    """Stop JetStream; the server goes on without it."""
    js, server.jetstream = server.jetstream, None
    server.update_info()
    if js:
        await js.close()


async def restart(server: Server) -> None:
    """Start JetStream in a server that runs; what goes wrong is logged (restartJetStream)."""
    server.log.notice("Restarting JetStream")
    try:
        await enable(server)
    except ServerError as exc:
        server.log.warn(f"Can't start JetStream: {exc}")
        await disable(server)
    server.update_info()
