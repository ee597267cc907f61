"""/raftz: the Raft groups that this server takes part in (Raftz in monitor.go)."""

from typing import TYPE_CHECKING, Protocol

from gnats.go.text import duration, rfc3339
from gnats.go.times import ZERO_TIME
from gnats.monitor.pages.options import RaftzOptions
from gnats.monitor.pages.render import Named, Page

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.jetstream.cluster.nodes import Nodes
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.jetstream.control.shared import Group


class RaftzServer(Named, Protocol):
    """The server as this page sees it."""

    @property
    def jetstream(self) -> "JetStream | None": ...
    @property
    def nodes(self) -> "Nodes | None": ...
    @property
    def system_account(self) -> "Account | None": ...


class NotFoundError(Exception):
    """The requested thing does not exist; the text is for the client."""


def raftz(server: RaftzServer, options: RaftzOptions) -> Page:
    """List the Raft groups by account and name. Raises NotFoundError when there is none at all."""
    page = raft_groups(server, options)
    if not page and not (server.jetstream and server.jetstream.shared.groups):
        raise NotFoundError("No Raft nodes registered")
    return page


def raft_groups(server: RaftzServer, options: RaftzOptions) -> Page:
    """List the Raft groups that the options ask for; {}: there is none."""
    js, account = server.jetstream, server.system_account
    if js is None or account is None or options.account not in ("", account.name):
        return {}
    groups = {group.node.group: group for group in js.shared.groups}
    shown = {
        name: _group(groups[name], account.name, server.nodes)
        for name in sorted(groups)
        if options.group in ("", name)
    }
    return {account.name: shown} if shown else {}


def _group(group: "Group", account: str, nodes: "Nodes | None") -> Page:
    state, own = group.node.state(), group.node.peer
    page: Page = {
        "id": _text(own),
        "state": state["state"].upper(),
        "size": state["size"],
        "quorum_needed": state["quorum"],
    }
    page |= {"observer": True} if state["observer"] else {}
    page |= {"committed": state["commit"], "applied": state["applied"]}
    page |= {"catching_up": True} if state["catching_up"] else {}
    page |= {"leader": _text(state["leader"])} if state["leader"] else {}
    page |= {"leader_since": rfc3339(group.leader_since)} if group.leader_since else {}
    page |= {"ever_had_leader": group.had_leader, "term": state["term"]}
    page |= {"voted_for": _text(state["vote"])} if state["vote"] else {}
    page |= {
        "pterm": state["pterm"],
        "pindex": state["pindex"],
        "system_account": True,
        "traffic_account": account,
        "ipq_proposal_len": 0,
        "ipq_entry_len": 0,
        "ipq_resp_len": 0,
        "ipq_apply_len": 0,
        "wal": _log(group),
    }
    page |= {"wal_error": group.node.failure} if group.node.failure else {}
    leads, leader = state["leader"] == own, state["leader"]
    page["peers"] = {
        _text(name): _peer(
            nodes.name_of(_text(name)) if nodes else "",
            known=name != state["changing"],
            index=index if leads else 0,
            heard=heard if leads or name == leader else -1,
        )
        for name, (index, heard) in sorted(state["peers"].items())
        if name != own
    }
    return page


def _peer(name: str, *, known: bool, index: int, heard: int) -> Page:
    peer: Page = {"name": name, "known": known}
    peer |= {"last_replicated_index": index} if index else {}
    return peer | ({"last_seen": duration(heard)} if heard >= 0 else {})


def _log(group: "Group") -> Page:
    state = group.node.files.log.state()
    return {
        "messages": state.msgs,
        "bytes": state.bytes,
        "first_seq": state.first_seq,
        "first_ts": rfc3339(state.first_ts) if state.first_ts else ZERO_TIME,
        "last_seq": state.last_seq,
        "last_ts": rfc3339(state.last_ts) if state.last_ts else ZERO_TIME,
        "consumer_count": 0,
    }


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
