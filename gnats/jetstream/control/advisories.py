"""Publish JetStream's advisories, and its metrics of acknowledgements (jetstream_events.go).

An advisory without a subscriber is not made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnats.clock import time_ns
from gnats.go.text import rfc3339
from gnats.go.times import ZERO_TIME, unix_ns
from gnats.jetstream.batch.batching import AbandonReason
from gnats.nkeys.identity import NuidSource

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.events.events import Events

ADVISORY = "$JS.EVENT.ADVISORY"
_TYPE = "io.nats.jetstream.advisory.v1."
ACK_METRIC = "$JS.EVENT.METRIC.CONSUMER.ACK"
_METRIC_TYPE = "io.nats.jetstream.metric.v1.consumer_ack"
_REASONS = {
    AbandonReason.ABANDONED_TIMEOUT: "timeout",
    AbandonReason.ABANDONED_LARGE: "large",
    AbandonReason.ABANDONED_INCOMPLETE: "incomplete",
    AbandonReason.ABANDONED_UNSUPPORTED: "unsupported",
}


class Advisories:
    """Publishes advisories in the accounts that they concern. Call it from the loop's thread."""

    def __init__(self, events: Events, system_account: Account | None, domain: str, cluster: str) -> None:
        self._events = events
        self._system_account = system_account
        self._domain = {"domain": domain} if domain else {}
        self._cluster = cluster
        self._ids = NuidSource()

    @property
    def server(self) -> tuple[str, str]:
        """This server's name and id."""
        return self._events.server_name, self._events.server_id

    def _publish(self, account: Account | None, where: str, kind: str, fields: dict[str, Any]) -> None:
        account = account or self._system_account
        if account is None or not account.sublist.interested(where.encode()):
            return
        event = {"type": kind, "id": self._ids.next(), "timestamp": rfc3339(time_ns())}
        self._events.publish_in(account, where.encode(), event | fields)

    def advise(self, account: Account | None, what: str, kind: str, **fields: Any) -> None:
        """Publish `$JS.EVENT.ADVISORY.<what>` in an account; None: in the system account."""
        self._publish(account, f"{ADVISORY}.{what}", _TYPE + kind, fields | self._domain)

    def api_audit(
        self, account: Account, client: dict[str, Any] | None, subject: str, request: str, response: str
    ) -> None:
        """Advise that a request to the API has been answered."""
        more = {"request": request} if request else {}
        self.advise(
            account,
            "API",
            "api_audit",
            server=self._events.server_name,
            client=_shown(client),
            subject=subject,
            **more,
            response=response,
        )

    def limit_reached(self, dropped: int) -> None:
        """Publish the advisory that requests to the API were dropped because too many were waiting."""
        fields = {"server": self._events.server_name} | self._domain | {"dropped": dropped}
        self._publish(None, f"{ADVISORY}.API.LIMIT_REACHED", _TYPE + "api_limit_reached", fields)

    def stream_action(self, account: Account, stream: str, action: str) -> None:
        """Advise that a stream was created ("create"), deleted ("delete") or changed ("modify")."""
        what = {"create": "CREATED", "delete": "DELETED", "modify": "UPDATED"}[action]
        self.advise(account, f"STREAM.{what}.{stream}", "stream_action", stream=stream, action=action)

    def stream_leader_elected(
        self, account: Account, stream: str, leader: str, replicas: list[dict[str, Any]]
    ) -> None:
        """Advise that this server, by the name `leader`, leads a replicated stream."""
        where = f"{ADVISORY}.STREAM.LEADER_ELECTED.{stream}"
        about = {"stream": stream, "leader": leader, "replicas": replicas} | self._domain
        for told, of in ((account, {}), (None, {"account": account.name})):
            self._publish(told, where, _TYPE + "stream_leader_elected", of | about)

    def consumer_leader_elected(
        self, account: Account, stream: str, consumer: str, leader: str, replicas: list[dict[str, Any]]
    ) -> None:
        """Advise that this server, by the name `leader`, leads a replicated consumer."""
        where = f"{ADVISORY}.CONSUMER.LEADER_ELECTED.{stream}.{consumer}"
        about = {"stream": stream, "consumer": consumer, "leader": leader, "replicas": replicas}
        about |= self._domain
        for told, of in ((account, {}), (None, {"account": account.name})):
            self._publish(told, where, _TYPE + "consumer_leader_elected", of | about)

    def batch_abandoned(self, account: Account, stream: str, batch: bytes, why: AbandonReason) -> None:
        """Advise that an atomic batch was abandoned; in the system account, with the account's name."""
        where = f"{ADVISORY}.STREAM.BATCH_ABANDONED.{stream}"
        about = {"stream": stream} | self._domain
        what = {"batch": batch.decode(errors="replace"), "reason": _REASONS[why]}
        for told, of in ((account, {}), (None, {"account": account.name})):
            self._publish(told, where, _TYPE + "stream_batch_abandoned", of | about | what)

    def consumer_action(self, account: Account, stream: str, consumer: str, action: str) -> None:
        """Advise that a consumer was created ("create") or deleted ("delete")."""
        what = {"create": "CREATED", "delete": "DELETED"}[action]
        self.advise(
            account,
            f"CONSUMER.{what}.{stream}.{consumer}",
            "consumer_action",
            stream=stream,
            consumer=consumer,
            action=action,
        )

    def consumer_pause(self, account: Account, stream: str, consumer: str, until: str) -> None:
        """Advise that a consumer is paused until a time (RFC 3339), or continues ("")."""
        paused = time_ns() < unix_ns(until)
        self.advise(
            account,
            f"CONSUMER.PAUSE.{stream}.{consumer}",
            "consumer_pause",
            stream=stream,
            consumer=consumer,
            paused=paused,
            pause_until=until or ZERO_TIME,
        )

    def new_id(self) -> str:
        """Return a new unique id (nuid)."""
        return self._ids.next()

    def snapshot_create(
        self, account: Account, stream: str, state: dict[str, Any], client: dict[str, Any] | None
    ) -> None:
        """Advise that a snapshot of a stream begins; `state` is the stream's state then."""
        fields = {"stream": stream, "state": state, "client": _shown(client)}
        self.advise(account, f"STREAM.SNAPSHOT_CREATE.{stream}", "snapshot_create", **fields)

    def snapshot_complete(
        self, account: Account, stream: str, start: int, end: int, client: dict[str, Any] | None, error: str
    ) -> None:
        """Advise that a snapshot has ended, with "" or an error. Times are ns since 1970."""
        fields = {"stream": stream, "start": rfc3339(start), "end": rfc3339(end), "client": _shown(client)}
        where = f"{ADVISORY}.STREAM.SNAPSHOT_COMPLETE.{stream}"
        more = {"error": error} if error else {}
        self._publish(account, where, _TYPE + "snapshot_complete", fields | self._domain | more)

    def restore_create(self, account: Account, stream: str, client: dict[str, Any] | None) -> None:
        """Advise that the restore of a stream begins."""
        fields = {"stream": stream, "client": _shown(client)}
        self.advise(account, f"STREAM.RESTORE_CREATE.{stream}", "restore_create", **fields)

    def restore_complete(
        self, account: Account, stream: str, start: int, end: int, size: int, client: dict[str, Any] | None
    ) -> None:
        """Advise that a restore has ended, after `size` bytes. Times are ns since 1970."""
        fields = {"stream": stream, "start": rfc3339(start), "end": rfc3339(end), "bytes": size}
        self.advise(
            account, f"STREAM.RESTORE_COMPLETE.{stream}", "restore_complete", **fields, client=_shown(client)
        )

    def domain_leader_elected(self, leader: str, replicas: list[dict[str, Any]]) -> None:
        """Advise in the system account that this server leads the meta group; `leader` is its name there."""
        self.advise(
            None,
            "DOMAIN.LEADER_ELECTED",
            "domain_leader_elected",
            leader=leader,
            replicas=replicas,
            cluster=self._cluster,
        )

    def server_removed(self) -> None:
        """Advise in the system account that this server is no member of the cluster's JetStream any more."""
        fields = {"server": self._events.server_name, "server_id": self._events.server_id}
        self.advise(None, "SERVER.REMOVED", "server_removed", **fields, cluster=self._cluster)

    def out_of_storage(self, stream: str) -> None:
        """Advise in the system account that a stream cannot be written."""
        fields = {
            "server": self._events.server_name,
            "server_id": self._events.server_id,
            "stream": stream,
            "cluster": self._cluster,
        }
        self.advise(None, "SERVER.OUT_OF_STORAGE", "server_out_of_space", **fields)

    def ack_metric(self, account: Account, stream: str, consumer: str, **fields: Any) -> None:
        """Publish the metric of an acknowledged message that was sampled."""
        subject = f"{ACK_METRIC}.{stream}.{consumer}"
        about = {"stream": stream, "consumer": consumer}
        self._publish(account, subject, _METRIC_TYPE, about | fields | self._domain)

    def group(
        self,
        account: Account,
        what: str,
        kind: str,
        stream: str,
        consumer: str,
        group: str,
        **fields: Any,
    ) -> None:
        """Advise that a priority group has another pinned client ("PINNED") or none ("UNPINNED")."""
        subject = f"{ADVISORY}.CONSUMER.{what}.{stream}.{consumer}"
        about = {"account": account.name, "stream": stream, "consumer": consumer}
        self._publish(account, subject, _TYPE + kind, about | self._domain | {"group": group} | fields)

    def about_message(
        self, account: Account, what: str, kind: str, stream: str, consumer: str, fields: dict[str, Any]
    ) -> None:
        """Advise about a consumer's message: "MAX_DELIVERIES", "MSG_NAKED" or "MSG_TERMINATED"."""
        subject = f"CONSUMER.{what}.{stream}.{consumer}"
        self.advise(account, subject, kind, stream=stream, consumer=consumer, **fields)


def _shown(client: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the client information of an advisory: without the JWT and the alternative servers."""
    if client is None:
        return None
    return {key: value for key, value in client.items() if key not in ("jwt", "alts")}
