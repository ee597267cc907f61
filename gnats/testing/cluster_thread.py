"""A cluster of servers in threads of this process, for tests of programs that connect to several servers."""

import asyncio
import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any, Self

from gnats.cluster import mesh
from gnats.cluster.cluster import Cluster
from gnats.commands.cluster.plan import HUB_DOMAIN
from gnats.go.hostport import RANDOM_PORT
from gnats.go.url import URL
from gnats.jetstream.control.metagroup import MetaGroup
from gnats.leafnodes import mesh as leaf_mesh
from gnats.leafnodes.leafnodes import LeafNodes
from gnats.nkeys.identity import server_hash
from gnats.options.values.cluster import LOOPBACK, ClusterOptions
from gnats.options.values.jetstream import JetStreamOptions, check_jetstream
from gnats.options.values.leafnodes import LeafNodeOptions, RemoteLeafOptions
from gnats.server.server import Server
from gnats.system.ports import port_of, reserve_port
from gnats.testing.server_thread import STOP_TIMEOUT, ServerThread

LEAF_RECONNECT = 0.05
"""Seconds before a leaf node that has lost its hub dials another one."""
_LEAF_USER = "leaf"

_marks = count(1)


def new_mark() -> str:
    """Return a mark that no other wait for interest has."""
    return f"mark{next(_marks)}"


_PORTS = ("port", "route_port", "leaf_port", "gateway_port")
"""The fields of a Place that are ports."""


@dataclass(slots=True)
class Place:
    """A server's ports, which stay the same when it starts again; 0 where it does not listen."""

    name: str
    route_port: int = 0
    leaf_port: int = 0
    port: int = RANDOM_PORT
    gateway_port: int = 0
    running_id: str = ""
    """The id of the running server, empty while none runs."""
    reserved: dict[str, socket.socket] = field(default_factory=dict)
    """What keeps the ports, by the names of their fields."""

    def reserve(self) -> None:
        """Choose ports for those that are RANDOM_PORT, and keep all: also while a server stops or starts."""
        for name in _PORTS:
            port = getattr(self, name)
            if port and name not in self.reserved:
                with suppress(OSError):  # another process was faster: the next start says so
                    self.reserved[name] = reserve_port(max(port, 0))
                    setattr(self, name, port_of(self.reserved[name]))

    def release(self) -> None:
        while self.reserved:
            self.reserved.popitem()[1].close()


class _Group:
    """Servers that are made alike, by number. `make` makes one for a number and its place."""

    def __init__(self, places: list[Place], make: Callable[[int, Place], ServerThread]) -> None:
        self.places = places
        self.servers: list[ServerThread] = []
        self._make = make

    @property
    def running(self) -> list[int]:
        return [number for number, place in enumerate(self.places) if place.running_id]

    @property
    def stopped(self) -> list[int]:
        return [number for number, place in enumerate(self.places) if not place.running_id]

    @property
    def ids(self) -> list[str]:
        """The ids of the servers that run."""
        return [place.running_id for place in self.places if place.running_id]

    def check_number(self, number: int, what: str) -> None:
        """Raise RuntimeError unless there is a server with this number."""
        if number not in range(len(self.places)):
            count = len(self.places)
            have = "none" if count == 0 else "number 0 only" if count == 1 else f"0 to {count - 1}"
            raise RuntimeError(f"the cluster has no {what} {number}: it has {have}")

    def check_stopped(self, number: int, what: str) -> None:
        """Raise RuntimeError unless a server was started and stopped."""
        self.check_number(number, what)
        if number not in self.stopped or number >= len(self.servers):
            raise RuntimeError(f"the cluster has no {what} {number} that was stopped")

    def start(self, number: int) -> None:
        place = self.places[number]
        place.reserve()
        server = self._make(number, place)
        server.reserved = frozenset(each.fileno() for each in place.reserved.values())
        self.servers[number : number + 1] = [server]
        try:
            server.start()
        except BaseException:
            server.stop(check=False)  # wait for the end of its thread
            raise
        place.running_id = server.call(lambda inner: inner.id)

    def stop(self, number: int, *, check: bool) -> None:
        self.places[number].running_id = ""
        self.servers[number].stop(check=check)


class ClusterThread:
    """Servers on 127.0.0.1, each in a thread of its own and connected to all others.

    They are called s0, s1 and so on. With `leafs=2` there are leaf nodes l0 and l1, too: each is connected to
    one of the others, and to another one when that stops. Keywords set options of all servers by name, as
    those of ServerThread do; `cluster`, a ClusterOptions, sets those of the members' routes, `leafnodes`, a
    LeafNodeOptions, those of their port for leaf nodes. Names and ports are the cluster's own. Servers may be
    stopped and started again one by one. Use it as a context manager, or call start() and stop(), from one
    thread.

    With JetStream, start() returns when a server leads it. Each server has a folder of its own below
    `store_dir`, which outlives a stop, and, with leaf nodes, a domain: "hub", or the leaf node's name. A
    single server is no cluster, unless `cluster` is given.
    """

    def __init__(self, size: int = 3, *, leafs: int = 0, name: str = "test", **options: Any) -> None:
        if size < 1:
            raise ValueError(f"a cluster has at least one server, not {size}")
        if leafs < 0:
            raise ValueError(f"a cluster has 0 or more leaf nodes, not {leafs}")
        check_jetstream(options.get("jetstream", JetStreamOptions()))
        routes: ClusterOptions | None = options.pop("cluster", None)
        self._routed = size > 1 or routes is not None
        self._cluster = replace(routes or ClusterOptions(), name=name, host=LOOPBACK)
        self._leafnodes: LeafNodeOptions = options.pop("leafnodes", None) or LeafNodeOptions()
        if leafs:
            self._leafnodes = _with_user(self._leafnodes)
        self._options = options
        leaf_port = RANDOM_PORT if leafs else 0
        route_port = RANDOM_PORT if self._routed else 0
        places = [Place(f"s{number}", route_port, leaf_port) for number in range(size)]
        self._members = _Group(places, self._make)
        self._leafs = _Group([Place(f"l{number}") for number in range(leafs)], self._make_leaf)
        self._ended: set[str] = set()
        """The ids of leaf nodes that were stopped."""

    def __len__(self) -> int:
        return len(self._members.places)

    @property
    def servers(self) -> list[ServerThread]:
        """The members by number, once they have started; one that starts again is another ServerThread."""
        return self._members.servers

    @property
    def leafs(self) -> list[ServerThread]:
        """The leaf nodes by number, in the same way."""
        return self._leafs.servers

    @property
    def running(self) -> list[int]:
        """The numbers of the members that run."""
        return self._members.running

    @property
    def running_leafs(self) -> list[int]:
        """The numbers of the leaf nodes that run."""
        return self._leafs.running

    @property
    def client_url(self) -> str:
        """A URL of the first member that runs. Raises RuntimeError when none does."""
        return self.client_urls[0]

    @property
    def client_urls(self) -> list[str]:
        """The URLs of all members that run. Raises RuntimeError when none does."""
        if not self.running:
            raise RuntimeError("no server of the cluster runs")
        return [self.servers[number].client_url for number in self.running]

    @property
    def leaf_urls(self) -> list[str]:
        """The URLs for clients of all leaf nodes that run."""
        return [self.leafs[number].client_url for number in self.running_leafs]

    # -- life ------------------------------------------------------------------------------------------------

    def start(self, member: int | None = None) -> None:
        """Start a stopped member again, on its ports; without `member`, all servers that do not run.

        Return when each running member is connected to all others, and each leaf node to one of them. Raises
        OptionError and ServerError, and TimeoutError when they do not connect in STOP_TIMEOUT
        (gnats.testing.server_thread).
        """
        if member is None:
            self._start_all(self._members.stopped, self._leafs.stopped)
        else:
            self._members.check_stopped(member, "server")
            self._start_all([member], [])

    def start_leaf(self, number: int) -> None:
        """Start a stopped leaf node again, on its port; return when it is connected. Raises as start()."""
        self._leafs.check_stopped(number, "leaf node")
        self._start_all([], [number])

    def stop(self, member: int | None = None) -> None:
        """Stop a member, as ServerThread.stop() does; without `member`, all that run. Idempotent.

        After the stop of one, return when the others have noticed: each leaf node is connected to one that
        runs, if there is one. Raises what ServerThread.stop() raises, and RuntimeError for an unknown number.
        """
        if member is None:
            self._stop_all(check=ServerThread.checks_rest)
            return
        self._members.check_number(member, "server")
        if self._members.places[member].running_id:
            self._members.stop(member, check=ServerThread.checks_rest)
            self._wait_for_links()

    def stop_leaf(self, number: int) -> None:
        """Stop a leaf node; return when the members have noticed. Idempotent. Raises as stop()."""
        self._leafs.check_number(number, "leaf node")
        if running_id := self._leafs.places[number].running_id:
            self._ended.add(running_id)
            self._leafs.stop(number, check=ServerThread.checks_rest)
            self._wait_for_links()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self._stop_all(check=ServerThread.checks_rest and kind is None)

    def wait_for_interest(self) -> None:
        """Return when each running server knows what clients of the others have subscribed to.

        It takes subscriptions into account that a server has answered: call the client's flush() before. A
        message that is published afterwards, to any server, reaches them. Raises TimeoutError.
        """
        mark = new_mark()
        # Interest goes from a leaf node to its hub, to the other members, and to their leaf nodes.
        self._gather_interest(mark)
        self._tell_leafs(mark)

    def _gather_interest(self, mark: str) -> None:
        """Return when each member knows the interest of all members and their leaf nodes."""
        self._send_leaf_marks(self._leafs, mark)
        self._wait_for_leaf_marks(self._members, mark, self._leafs.ids)
        for server in self._running(self._members) if self._routed else ():
            server.call(lambda inner: mesh.send_mark(_cluster_of(inner), mark))
        for server in self._running(self._members) if self._routed else ():
            server.run(mesh.wait_for_mark(_cluster_of(server.server), mark))

    def _tell_leafs(self, mark: str) -> None:
        """Return when the leaf nodes know the interest that their hubs know now."""
        self._send_leaf_marks(self._members, mark)
        self._wait_for_leaf_marks(self._leafs, mark, self._members.ids)

    # -- servers ---------------------------------------------------------------------------------------------

    def _make(self, number: int, place: Place) -> ServerThread:
        """Make a member that connects to those that run now."""
        urls = [
            URL("nats-route", host=f"{LOOPBACK}:{self._members.places[other].route_port}")
            for other in self.running
        ]
        own = {
            "server_name": place.name,
            "host": LOOPBACK,
            "port": place.port,
            "leafnodes": replace(self._leafnodes, host=LOOPBACK, port=place.leaf_port),
            **self._jetstream(place, HUB_DOMAIN),
        }
        if self._routed:
            own["cluster"] = replace(self._cluster, port=place.route_port, routes=tuple(urls))
        return ServerThread(**self._options | own | self._joining(place))

    def _joining(self, place: Place) -> dict[str, Any]:
        """Return the options that join a member to other clusters."""
        return {}

    def _jetstream(self, place: Place, domain: str) -> dict[str, JetStreamOptions]:
        """Return the options of a server's JetStream, if any: its folder and, with leaf nodes, its domain."""
        options: JetStreamOptions | None = self._options.get("jetstream")
        if options is None or not options.enabled:
            return {}
        folder = str(Path(options.store_dir) / place.name) if options.store_dir else ""
        own = options.domain or (domain if self._leafs.places else "")
        return {"jetstream": replace(options, store_dir=folder, domain=own)}

    def _make_leaf(self, number: int, place: Place) -> ServerThread:
        """Make a leaf node of all members; each dials another one first."""
        block = self._leafnodes
        urls = [
            URL(
                "nats-leaf",
                user=block.username,
                password=block.password,
                host=f"{LOOPBACK}:{member.leaf_port}",
            )
            for member in self._members.places
        ]
        first = number % len(urls)
        remote = RemoteLeafOptions(tuple(urls[first:] + urls[:first]), no_randomize=True)
        own = {
            "server_name": place.name,
            "host": LOOPBACK,
            "port": place.port,
            "leafnodes": LeafNodeOptions(reconnect_interval=LEAF_RECONNECT, remotes=(remote,)),
            **self._jetstream(place, place.name),
        }
        return ServerThread(**self._options | own)

    def _start_all(self, members: list[int], leafs: list[int]) -> None:
        try:
            for number in members:
                self._members.start(number)
            for number in leafs:
                self._leafs.start(number)
            self._wait_for_links()
        except BaseException:
            self._stop_all(check=False)
            raise

    def _stop_all(self, *, check: bool) -> None:
        groups = self._members, self._leafs
        with ExitStack() as stack:
            for group in groups:
                for place in group.places:
                    stack.callback(place.release)
            for group in groups:  # the last callback runs first: leaf nodes stop before members
                for number in reversed(group.running):
                    stack.callback(group.stop, number, check=check)
            self._ended.update(self._leafs.ids)

    @staticmethod
    def _running(group: _Group) -> list[ServerThread]:
        return [group.servers[number] for number in group.running]

    # -- waits -----------------------------------------------------------------------------------------------

    def _wait_for_links(self) -> None:
        """Return when the servers that run have all connections to each other, and to no other server."""
        for number in self._members.running:
            server = self.servers[number]
            others = [
                self._members.places[other].running_id for other in self._members.running if other != number
            ]
            try:
                if self._routed:
                    server.run(mesh.wait_for_mesh(_cluster_of(server.server), others))
                if self._leafs.places:
                    server.run(leaf_mesh.wait_for_departure(_leafs_of(server.server), self._ended))
            except TimeoutError:
                missing = f"{self._members.places[number].name} is not connected to just the others that run"
                raise TimeoutError(f"{missing}, after {STOP_TIMEOUT:.0f} s") from None
        if len(self._members.running) > len(self) // 2:
            self._wait_for_leader()
        for number in self._leafs.running if self._members.running else ():
            server = self.leafs[number]
            try:
                server.run(leaf_mesh.wait_for_hubs(_leafs_of(server.server), self._members.ids))
            except TimeoutError:
                missing = f"{self._leafs.places[number].name} is not connected to a server that runs"
                raise TimeoutError(f"{missing}, after {STOP_TIMEOUT:.0f} s") from None

    def _wait_for_leader(self) -> None:
        """Return when a server leads JetStream, if there is any."""
        require_leader(self._running(self._members))

    def _send_leaf_marks(self, group: _Group, mark: str) -> None:
        for server in self._running(group) if self._leafs.places else ():
            server.call(lambda inner: leaf_mesh.send_mark(_leafs_of(inner), mark))

    def _wait_for_leaf_marks(self, group: _Group, mark: str, server_ids: list[str]) -> None:
        for server in self._running(group) if self._leafs.places else ():
            server.run(leaf_mesh.wait_for_mark(_leafs_of(server.server), mark, server_ids))


def _with_user(block: LeafNodeOptions) -> LeafNodeOptions:
    """Return a block with a user for leaf nodes, so that they need none of the members' clients' users.

    Raises ValueError for a block with other credentials.
    """
    if block.users or block.nkey:
        raise ValueError("the leafnodes block of a cluster with leafs has a username, or no credentials")
    return block if block.username else replace(block, username=_LEAF_USER, password=token_hex(16))


def require_leader(servers: list[ServerThread]) -> None:
    """Return when all members know who leads JetStream, and the leader where streams can be.

    Raises TimeoutError.
    """
    peers = [server_hash(server.server.name) for server in servers]
    for server in servers:
        js = server.server.jetstream
        if js and js.cluster:
            try:
                server.run(wait_for_leader(js.cluster, peers))
            except TimeoutError:
                raise TimeoutError(f"no server leads JetStream, after {STOP_TIMEOUT:.0f} s") from None


async def wait_for_leader(meta: MetaGroup, peers: Iterable[str]) -> None:
    """Return when a member knows who leads; the leader, when it knows what each of the peers can store."""

    def is_ready() -> bool:
        nodes = meta.nodes.placement()
        return bool(meta.leader) and (
            not meta.leads or all((node := nodes.get(peer)) and node.selectable for peer in peers)
        )

    changed = asyncio.Event()
    meta.watchers.add(changed.set)
    meta.lead_changed.append(lead := lambda leads: changed.set())
    meta.nodes.changed.append(node_changed := lambda peer: changed.set())
    try:
        while not is_ready():
            changed.clear()
            await changed.wait()
    finally:
        meta.watchers.discard(changed.set)
        meta.lead_changed.remove(lead)
        meta.nodes.changed.remove(node_changed)


def _cluster_of(server: Server) -> Cluster:
    assert server.cluster, "the options of a member have a port for routes"
    return server.cluster


def _leafs_of(server: Server) -> LeafNodes:
    assert server.leafs, "the options have a port for leaf nodes, or a remote"
    return server.leafs
