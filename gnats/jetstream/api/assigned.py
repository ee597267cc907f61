"""Carry out what the meta group has assigned to this server, and answer whoever has asked for it.

(processClusterCreateStream, processClusterUpdateStream, processClusterDeleteStream and those of consumers in
jetstream_cluster.go.) What concerns one account is done in the order in which it was decided; accounts do not
wait for each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gnats.go.json import Json
from gnats.go.text import os_error
from gnats.jetstream import errors
from gnats.jetstream.api.consumer_requests import identity_header
from gnats.jetstream.api.request import RESPONSE_TYPE, Request, Responder
from gnats.jetstream.api.stream_requests import describe
from gnats.jetstream.cluster.entries import Asset, ConsumerAssignment, StreamAssignment
from gnats.jetstream.cluster.meta import Change, ConsumerChange, Kind, StreamChange
from gnats.jetstream.control.consumermember import ConsumerMembership
from gnats.jetstream.control.consumers import Consumer, consumer_info
from gnats.jetstream.control.info import cluster_info
from gnats.jetstream.control.membership import Membership
from gnats.jetstream.control.proposals import (
    ConsumerDeleteProposal,
    ConsumerProposal,
    StreamDeleteProposal,
    StreamProposal,
    StreamUpdateProposal,
)
from gnats.jetstream.control.recovery import forget_removed, recover_assigned
from gnats.jetstream.control.streams import Stream
from gnats.jetstream.disk.metafiles import META_FILE
from gnats.jetstream.errors import ApiError
from gnats.raft.files import FilesError

if TYPE_CHECKING:
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.jetstream.control.jsaccount import JSAccount
    from gnats.jetstream.control.metagroup import MetaGroup

_PAUSE = "$JS.API.CONSUMER.PAUSE."
"""Requests that the leader answers itself."""


class Assigned:
    """This server's part of the assignments. Used from the loop's thread only.

    `refuse` tells the leader that an asset could not be made, or, with True, changed.
    """

    def __init__(
        self,
        js: JetStream,
        meta: MetaGroup,
        responder: Responder,
        refuse: Callable[[Asset, ApiError, bool], None],
    ) -> None:
        self.js = js
        self._meta = meta
        self._responder = responder
        self._refused = refuse
        self._waiting: dict[str, deque[Change]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def carry_out(self, changes: Iterable[Change]) -> None:
        """Carry out changes, behind those that wait."""
        for change in changes:
            if self._closed:
                continue
            if not self._concerns(change):
                self._answer_for_others(change)
                continue
            account = change.assignment.account
            self._waiting.setdefault(account, deque()).append(change)
            if account not in self._workers:
                self._workers[account] = task = asyncio.create_task(self._work(account))
                task.add_done_callback(self._worked)

    async def wait(self) -> None:
        """Wait until nothing is left to do."""
        while self._workers:
            await asyncio.wait(list(self._workers.values()))

    async def close(self) -> None:
        """Stop: what is under way is ended, what waits is done after the next start."""
        self._closed = True
        self._waiting.clear()
        await self.wait()

    def _concerns(self, change: Change) -> bool:
        return change.member or change.was_member or self._stream(change) is not None

    def _answer_for_others(self, change: Change) -> None:
        """Answer, as the leader, for the removal of a stream whose servers are all offline."""
        asset, meta = change.assignment, self._meta
        if (
            change.kind is Kind.REMOVED
            and isinstance(asset, StreamAssignment)
            and asset.reply
            and not change.recovering
            and meta.leads
            and not any(meta.nodes.is_online(peer) for peer in asset.group.peers)
        ):
            self._responder.respond(self._request(asset, "stream_delete_response"), {"success": True})

    def _stream(self, change: Change) -> Stream | None:
        """Return the stream as it is at this server."""
        asset = change.assignment
        jsa = self.js.accounts.get(asset.account)
        name = asset.stream if isinstance(asset, ConsumerAssignment) else asset.name
        return jsa.streams.get(name) if jsa else None

    async def _work(self, account: str) -> None:
        while changes := self._waiting.get(account):
            change = changes.popleft()
            try:
                await self._do(change)
            except ApiError as exc:
                self._refuse(change, exc)
            except OSError as exc:
                self._refuse(change, errors.STREAM_GENERAL(err=os_error(exc)))
        self._waiting.pop(account, None)
        del self._workers[account]

    def _worked(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or not (exc := task.exception()):
            return
        account = next(name for name, each in self._workers.items() if each is task)
        del self._workers[account]
        self.js.log.error(f"JetStream cluster: an assignment of account {account}: {exc!r:.500}")
        if self._waiting.get(account) and not self._closed:
            self._workers[account] = again = asyncio.create_task(self._work(account))
            again.add_done_callback(self._worked)

    def _refuse(self, change: Change, error: ApiError) -> None:
        asset = change.assignment
        what = "consumer" if isinstance(asset, ConsumerAssignment) else "stream"
        self.js.log.warn(f"JetStream cluster: {what} '{asset.account} > {asset.name}': {error}")
        if change.member and not change.recovering and change.kind is not Kind.REMOVED:
            self._refused(asset, error, change.previous is not None)

    async def _do(self, change: Change) -> None:
        asset = change.assignment
        jsa = self.js.accounts.get(asset.account)
        if jsa is None:
            raise errors.NOT_ENABLED_FOR_ACCOUNT()
        name = asset.stream if isinstance(asset, ConsumerAssignment) else asset.name
        async with self.js.changing_streams(asset.account, name):
            if isinstance(change, ConsumerChange):
                await self._do_consumer(jsa, change)
            elif change.kind is Kind.REMOVED or not change.member:
                await self._delete_stream(jsa, change)
            else:
                await self._place_stream(jsa, change)

    # -- streams ---------------------------------------------------------------------------------------------

    async def _place_stream(self, jsa: JSAccount, change: StreamChange) -> None:
        """Make a stream, recover it from the disk, or change it (processClusterCreateStream)."""
        asset = change.assignment
        config = asset.config
        there = jsa.streams.get(asset.name)
        if reason := asset.unsupported or _unbuilt(asset):
            self._take_offline(jsa, asset, there, reason)
            if not asset.unsupported:
                raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
            return
        if asset.restore is not None:
            raise errors.CLUSTER_UNSUPPORT_FEATURE()
        made = False
        if there is not None and there.created != asset.created_ns:
            await jsa.apply(StreamDeleteProposal(there.name, there.created))  # its removal is known elsewhere
            there = None
        replicated = len(asset.group.peers) > 1
        if there is None and self._is_on_disk(jsa, asset):
            consumers = {each.name for each in self._meta.state.consumers_of(asset.account, asset.name)}
            there = await recover_assigned(
                jsa, asset.name, asset.created_ns, consumers, replicated=replicated
            )
        if there is None:
            jsa.check_storable(config)
            await jsa.apply(StreamProposal(config, asset.created_ns, replicated))
            made = True
        elif there.config != config and not there.offline_reason:
            await jsa.apply(StreamUpdateProposal(config))
        stream = jsa.stream(asset.name)
        if replicated and not stream.offline_reason and stream.member is None:
            await self._join(jsa, stream, change, made=made)
        elif not change.recovering and asset.reply and self._answers_here(asset, stream):
            await self._describe(change, stream, made=made)

    async def _join(self, jsa: JSAccount, stream: Stream, change: StreamChange, *, made: bool) -> None:
        """Take part in a stream's group; its first leader answers who has asked for the stream."""
        account = self.js.server_accounts.system_account
        assert account
        asset = change.assignment
        meta = self._meta

        def consumers() -> Iterable[str]:
            known = meta.state.consumers_of(asset.account, asset.name)
            return [each.name for each in known if each.group.is_member(meta.peer)]

        member = Membership(stream, asset, meta.nodes, account, consumers)
        stream.member = member

        def answer() -> None:
            if made:
                self.js.advisories.stream_action(jsa.account, stream.name, "create")
            if asset.reply:
                self.js.shared.spawn(self._describe(change, stream, made=made))

        if not change.recovering:
            member.on_lead = answer
        try:
            await member.open()
        except (OSError, FilesError, MemoryError) as exc:
            stream.member = None
            stream.go_offline(f"stopped - its group cannot be opened: {exc}")
            raise errors.STREAM_CREATE(err=exc) from exc

    async def _describe(self, change: StreamChange, stream: Stream, *, made: bool) -> None:
        """Answer who has asked for a stream, or for its change."""
        asset = change.assignment
        cluster = cluster_info(self.js, stream)
        if change.kind is Kind.UPDATED:
            request = self._request(asset, "stream_update_response")
            members = await describe(request, stream, {}, domain=self.js.domain, cluster=cluster)
        else:
            request = self._request(asset, "stream_create_response")
            more: Json = {"did_create": True} if made or change.previous is None else {}
            members = await describe(request, stream, more, cluster=cluster)
        if members is not None:
            self._responder.respond(request, members)

    def _is_on_disk(self, jsa: JSAccount, asset: StreamAssignment) -> bool:
        return (jsa.stream_directory(asset.name) / META_FILE).exists()

    def _take_offline(
        self, jsa: JSAccount, asset: StreamAssignment, there: Stream | None, reason: str
    ) -> None:
        if there is None:
            offline = Stream(jsa, asset.config, "", asset.created_ns, offline_reason=reason)
            jsa.add_offline(offline)
        elif not there.offline_reason:
            there.go_offline(reason)

    async def _delete_stream(self, jsa: JSAccount, change: StreamChange) -> None:
        asset = change.assignment
        there = jsa.streams.get(asset.name)
        answers = self._answers_here(asset, there)
        if there is not None and there.created <= asset.created_ns:
            await jsa.apply(StreamDeleteProposal(there.name, there.created))
        if there is None and change.recovering:
            await forget_removed(jsa, asset.name, asset.created_ns)
        if change.kind is Kind.REMOVED and not change.recovering and asset.reply and answers:
            self._responder.respond(self._request(asset, "stream_delete_response"), {"success": True})

    # -- consumers -------------------------------------------------------------------------------------------

    async def _do_consumer(self, jsa: JSAccount, change: ConsumerChange) -> None:
        asset = change.assignment
        stream = jsa.streams.get(asset.stream)
        there = stream.consumers.get(asset.name) if stream else None
        if change.kind is Kind.REMOVED or not change.member:
            answers = self._answers_here(asset, there)
            if there is not None and (change.previous is not None or there.created <= asset.created_ns):
                await jsa.apply(ConsumerDeleteProposal(asset.stream, asset.name, there.created))
            if change.kind is Kind.REMOVED and not change.recovering and asset.reply and answers:
                self._responder.respond(self._request(asset, "consumer_delete_response"), {"success": True})
            return
        stream = jsa.stream(asset.stream)
        if asset.unsupported:
            if not stream.offline_reason:
                stream.go_offline(f'stopped - unsupported consumer "{asset.name}"')
            if there is None:
                reason = asset.unsupported
                stream.enter_consumer(
                    Consumer(stream, asset.name, asset.config, asset.created_ns, offline_reason=reason)
                )
            return
        if stream.offline_reason:
            raise errors.STREAM_OFFLINE_REASON(err=stream.offline_reason)
        if change.state is not None:
            raise errors.CLUSTER_UNSUPPORT_FEATURE()
        replicated = len(asset.group.peers) > 1
        if there is not None and there.replicated != replicated:
            raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
        if there is not None and there.created != asset.created_ns:
            await jsa.apply(ConsumerDeleteProposal(asset.stream, asset.name, there.created))
        await jsa.apply(
            ConsumerProposal(asset.stream, asset.name, asset.config, asset.created_ns, replicated=replicated)
        )
        consumer = stream.consumer(asset.name)
        if replicated and consumer.member is None:
            await self._join_consumer(consumer, change)
        elif consumer.leads:
            self._describe_consumer(change, consumer)

    async def _join_consumer(self, consumer: Consumer, change: ConsumerChange) -> None:
        """Take part in a consumer's group; its first leader answers who has asked for the consumer."""
        account = self.js.server_accounts.system_account
        assert account
        consumer.member = member = ConsumerMembership(consumer, change.assignment, self._meta.nodes, account)

        def answer() -> None:
            """Before the first message is delivered."""
            stream = consumer.stream
            if not consumer.config.direct:
                self.js.advisories.consumer_action(stream.jsa.account, stream.name, consumer.name, "create")
            self._describe_consumer(change, consumer)

        if not change.recovering:
            member.on_lead = answer
        try:
            await member.open()
        except (OSError, FilesError, MemoryError) as exc:
            consumer.member = None
            raise errors.CONSUMER_STORE_FAILED(err=exc) from exc

    def _describe_consumer(self, change: ConsumerChange, consumer: Consumer) -> None:
        """Answer who has asked for a consumer, or for its change."""
        asset = change.assignment
        if change.recovering or not asset.reply or asset.subject.startswith(_PAUSE):
            return
        request = self._request(asset, "consumer_create_response")
        if asset.config.direct or asset.config.sourcing:
            request.response_header = identity_header(consumer.stream)
        self._responder.respond(request, consumer_info(consumer))

    # -- answers ---------------------------------------------------------------------------------------------

    def _answers_here(self, asset: Asset, there: Stream | Consumer | None) -> bool:
        """Whether this server answers for an asset: it leads it, or is the first where nobody does."""
        if there and there.member and not there.member.leaderless:
            return there.member.leads
        return asset.group.peers[:1] == (self._meta.peer,)

    def _request(self, asset: Asset, response: str) -> Request:
        """Make the request whose answer is due."""
        account = self.js.server_accounts.get(asset.account)
        assert account is not None
        return Request(
            self.js,
            self._responder,
            asset.subject,
            asset.subject.split(".")[2:],
            asset.reply.encode(),
            b"",
            b"",
            account,
            asset.client.json() if asset.client else None,
            RESPONSE_TYPE + response,
        )


def _unbuilt(asset: StreamAssignment) -> str:
    """Return why this server cannot have its part of a stream, "": it can."""
    return "stopped - a move is not supported by this server" if asset.group.desired else ""
