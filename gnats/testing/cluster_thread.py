"""A cluster of servers in threads of this process, for tests of programs that connect to several servers."""

import socket
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Self

from gnats.cluster.cluster import Cluster
from gnats.cluster.mesh import send_mark, wait_for_mark, wait_for_mesh
from gnats.go.hostport import RANDOM_PORT
from gnats.go.url import URL
from gnats.options.values.cluster import LOOPBACK, ClusterOptions
from gnats.server.server import Server
from gnats.system.ports import reserve_port
from gnats.testing.server_thread import STOP_TIMEOUT, ServerThread

_marks = count(1)


@dataclass(slots=True)
class _Place:
    """A member's ports, which stay the same when it starts again."""

    running_id: str = ""
    """The id of the running server, empty while none runs."""
    port: int = RANDOM_PORT
    route_port: int = RANDOM_PORT
    reserved: list[socket.socket] = field(default_factory=list)

    def reserve(self) -> None:
        """Keep the ports while no server listens on them."""
        for port in self.port, self.route_port:
            with suppress(OSError):  # another process was faster: the next start says so
                self.reserved.append(reserve_port(port))

    def release(self) -> None:
        while self.reserved:
            self.reserved.pop().close()


class ClusterThread:
    """Servers on 127.0.0.1, each in a thread of its own and connected to all others.

    They are called s0, s1 and so on. Keywords set options of all members by name, as those of ServerThread
    do; `cluster`, a ClusterOptions, sets those of their routes. Names and ports are the cluster's own.
    Members may be stopped and started again one by one. Use it as a context manager, or call start() and
    stop(), from one thread.
    """

    def __init__(self, size: int = 3, *, name: str = "test", **options: Any) -> None:
        if size < 1:
            raise ValueError(f"a cluster has at least one server, not {size}")
        routes: ClusterOptions = options.pop("cluster", None) or ClusterOptions()
        self._cluster = replace(routes, name=name, host=LOOPBACK)
        self._options = options
        self._places = [_Place() for _ in range(size)]
        self.servers: list[ServerThread] = []
        """The members by number, once they have started; one that starts again is another ServerThread."""

    def __len__(self) -> int:
        return len(self._places)

    @property
    def running(self) -> list[int]:
        """The numbers of the members that run."""
        return [number for number, place in enumerate(self._places) if place.running_id]

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

    # -- life ------------------------------------------------------------------------------------------------

    def start(self, member: int | None = None) -> None:
        """Start a stopped member again, on its ports; without `member`, all that do not run.

        Return when each running member is connected to all others. Raises OptionError and ServerError, and
        TimeoutError when they do not connect in STOP_TIMEOUT (gnats.testing.server_thread).
        """
        stopped = [number for number, place in enumerate(self._places) if not place.running_id]
        if member is None:
            members = stopped
        elif member in stopped and member < len(self.servers):
            members = [member]
        else:
            raise RuntimeError(f"the cluster has no server {member} that was stopped")
        try:
            for number in members:
                self._start(number)
            self._wait_for_mesh()
        except BaseException:
            self._stop_all(check=False)
            raise

    def stop(self, member: int | None = None) -> None:
        """Stop a member, as ServerThread.stop() does; without `member`, all that run. Idempotent.

        After the stop of one, return when the others have noticed. Raises what ServerThread.stop() raises.
        """
        if member is None:
            self._stop_all(check=ServerThread.checks_rest)
        elif self._places[member].running_id:
            self._stop(member, check=ServerThread.checks_rest)
            self._wait_for_mesh()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self._stop_all(check=ServerThread.checks_rest and kind is None)

    def wait_for_interest(self) -> None:
        """Return when each running member knows what clients of the others have subscribed to.

        It takes subscriptions into account that a server has answered: call the client's flush() before. A
        message that is published afterwards, to any member, reaches them. Raises TimeoutError.
        """
        mark = f"mark{next(_marks)}"
        for number in self.running:
            self.servers[number].call(lambda server: send_mark(_cluster_of(server), mark))
        for number in self.running:
            server = self.servers[number]
            server.run(wait_for_mark(_cluster_of(server.server), mark))

    # -- members ---------------------------------------------------------------------------------------------

    def _make(self, number: int) -> ServerThread:
        """Make a member that connects to those that run now."""
        place = self._places[number]
        urls = [
            URL("nats-route", host=f"{LOOPBACK}:{self._places[other].route_port}") for other in self.running
        ]
        own = {
            "server_name": f"s{number}",
            "host": LOOPBACK,
            "port": place.port,
            "cluster": replace(self._cluster, port=place.route_port, routes=tuple(urls)),
        }
        return ServerThread(**self._options | own)

    def _start(self, number: int) -> None:
        place = self._places[number]
        server = self._make(number)
        self.servers[number : number + 1] = [server]
        place.release()
        server.start()
        place.running_id, place.port, place.route_port = server.call(
            lambda inner: (inner.id, inner.port, _cluster_of(inner).port)
        )

    def _stop(self, number: int, *, check: bool) -> None:
        place = self._places[number]
        place.running_id = ""
        try:
            self.servers[number].stop(check=check)
        finally:
            place.reserve()

    def _stop_all(self, *, check: bool) -> None:
        with ExitStack() as stack:
            for place in self._places:
                stack.callback(place.release)
            for number in reversed(self.running):
                stack.callback(self._stop, number, check=check)

    def _wait_for_mesh(self) -> None:
        """Return when each running member has all connections to all others, and to no other server."""
        for number in self.running:
            server = self.servers[number]
            others = [self._places[other].running_id for other in self.running if other != number]
            try:
                server.run(wait_for_mesh(_cluster_of(server.server), others))
            except TimeoutError:
                missing = f"s{number} is not connected to just the others that run"
                raise TimeoutError(f"{missing}, after {STOP_TIMEOUT:.0f} s") from None


def _cluster_of(server: Server) -> Cluster:
    assert server.cluster, "the options of a member have a port for routes"
    return server.cluster
