"""A hub and a spoke, of which either may have JetStream, with a link between them that tests can cut."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.launch import Launch, launcher
from support.servers import REFERENCE, TIMEOUT, Kind, Server, reserve_port, until

from .conftest import require_all
from .members import Client
from .proxy import PASS, REFUSE, Proxy
from .test_leafnodes import leafs

HUB = "jetstream { store_dir: js, domain: hub }"
LEAF = "jetstream { store_dir: js, domain: leaf }"
NO_DOMAIN = "jetstream { store_dir: js }"
STREAMS = "jetstream: enabled"


def accounts(of_a: str, users: str = "") -> str:
    """Return the accounts of a server: `of_a` are further lines of A, `users` further users of it."""
    return f"""
accounts {{
  SYS {{ users: [ {{ user: s, password: p }} ] }}
  A {{ users: [ {{ user: a, password: p }} {users} ]\n{of_a}\n }}
  B {{ users: [ {{ user: b, password: p }} ] }}
}}
system_account: SYS
"""


class Link:
    """A proxy before a port, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._proxy = Proxy(lambda: port)
        self.port = self._proxy.port
        asyncio.run_coroutine_threadsafe(self._proxy.start(), self._loop).result(TIMEOUT)

    def set(self, mode: str) -> None:
        """Change what happens to the connections: see Proxy.set."""
        self._loop.call_soon_threadsafe(self._proxy.set, mode)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.close(), self._loop).result(TIMEOUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT)
        self._loop.close()


class Domains:
    """Servers `hub` and `leaf`; the latter dials the former, as user a of account A.

    `top` are lines outside of all blocks, for the hub and for the leaf; `own` lines of their account A, and
    `users` further users of it; `remote` are lines of the leaf's remotes, one for each of `of`.
    """

    def __init__(
        self,
        launch: Launch,
        kinds: Sequence[Kind],
        links: ExitStack,
        *,
        top: tuple[str, str] = (HUB, LEAF),
        own: tuple[str, str] = (STREAMS, STREAMS),
        users: tuple[str, str] = ("", ""),
        remote: str = "",
        user: str = "a",
        of: str = "A",
    ) -> None:
        port = reserve_port(self)
        self.link = Link(port)
        links.callback(self.link.close)
        self._count = len(of)
        remotes = "\n".join(
            f'{{ url: "nats-leaf://{user if name == "A" else name.lower()}:p@127.0.0.1:{self.link.port}"\n'
            f"account: {name}\n{remote} }}"
            for name in of
        )
        blocks = f"listen: '127.0.0.1:{port}'", f"reconnect: '0.2s'\nremotes [ {remotes} ]"
        self.servers: list[Server] = [
            launch(
                "-m",
                "-1",
                "-DV",
                config=f"server_name: {name}\nleafnodes {{ {block} }}\n{lines}\n{accounts(of_a, more)}",
                kind=kind,
            )
            for name, kind, block, lines, of_a, more in zip(
                ("hub", "leaf"), kinds, blocks, top, own, users, strict=True
            )
        ]
        self.wait()

    def __getitem__(self, number: int) -> Server:
        return self.servers[number]

    def wait(self, *, linked: bool = True) -> None:
        """Wait until both servers have all connections, or none."""
        for server in self.servers:
            until(lambda server=server: len(leafs(server)) == self._count * linked)  # type: ignore[misc]

    def cut(self) -> None:
        """Cut the link and have no new one."""
        self.link.set(REFUSE)
        self.wait(linked=False)

    def mend(self) -> None:
        """Let the leaf connect again, and wait for it."""
        self.link.set(PASS)
        self.wait()


@contextmanager
def domains(directory: Path, kinds: Sequence[Kind], **how: object) -> Iterator[Domains]:
    """Run a hub and a leaf. `how`: see Domains."""
    require_all(tuple(kinds))
    with ExitStack() as links, launcher(REFERENCE, directory) as launch:
        yield Domains(launch, kinds, links, **how)  # type: ignore[arg-type]


def answers(client: Client, subject: str) -> bool:
    """Return whether somebody has answered a request."""
    return client.request(subject).status != "503"


def api(client: Client, subject: str, body: object = None) -> dict[str, object]:
    """Return the answer to a request that succeeds."""
    answer: dict[str, object] = client.request(subject, body).json
    assert "error" not in answer, answer
    return answer
