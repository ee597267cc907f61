"""The clients of a server (server.go, client.go): made of accepted sockets, logged, forgotten when closed."""

import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gnats.auth.authenticator import new_nonce
from gnats.auth.connect import Connector
from gnats.client.session import Session
from gnats.connection.closed_state import ClosedState
from gnats.core.client import Client
from gnats.core.net.connection import Connection
from gnats.core.runtime.inbox import EV_CLOSED, EV_CONNECT, EV_INFO
from gnats.core.runtime.kinds import CLIENT
from gnats.runtime.reported import answer_punt, unmapped
from gnats.runtime.reporting import Reporting

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.core.runtime.state import ServerState
    from gnats.runtime.dispatch import EventTable
    from gnats.runtime.pollers import Pollers
    from gnats.tls.context import ClientTLS


class Clients:
    """The connections of clients, and the last ones that were closed.

    `clients`, empty at first, gets the clients by connection id, but not those that are refused. `connector`
    answers their CONNECTs. `next_cid` returns an unused connection id. `gone` is called when a
    connection has gone. `most_closed` closed ones are kept.
    """

    def __init__(
        self,
        clients: dict[int, Session],
        connector: Connector,
        state: "ServerState",
        account: "Account",
        next_cid: Callable[[], int],
        gone: Callable[[], object],
        most_closed: int,
    ) -> None:
        self._connector = connector
        self._log = connector.log
        self._state = state
        self._account = account
        """The account of clients whose CONNECT has named no other one yet."""
        self._next_cid = next_cid
        self._pollers: Pollers | None = None
        self._gone = gone
        self.tls: ClientTLS | None = None
        self.open = clients
        self.refused: dict[int, Session] = {}
        self.closed: deque[Session] = deque(maxlen=most_closed)
        self.total = 0

    def __bool__(self) -> bool:
        return bool(self.open or self.refused)

    # -- life ------------------------------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """Whether create_client() makes clients."""
        return self._pollers is not None

    def accept(self, pollers: "Pollers") -> None:
        """Make clients of accepted sockets from now on."""
        self._pollers = pollers

    def stop_accepting(self) -> None:
        """Close accepted sockets from now on; established connections stay."""
        self._pollers = None

    def create_client(self, sock: socket.socket, host: str, port: int) -> None:
        """Make a client of an accepted socket, queue its INFO and give it to a poller. Owns `sock`."""
        if self._pollers is None:
            sock.close()
            return
        connector, log = self._connector, self._log
        opts = connector.options()
        host = unmapped(host)
        client = Client(
            CLIENT,
            sock.fileno(),
            self._next_cid(),
            self._pollers.choose(),
            self._state,
            max_control_line=opts.max_control_line,
            max_payload=max(opts.max_payload, -1),
            max_pending=opts.max_pending,
            max_subs=opts.max_subs or -1,
            write_deadline=opts.write_deadline,
            retries=opts.write_timeout == "retry",
            ping_interval=opts.ping_interval,
            ping_max=max(opts.ping_max, -1),
        )
        sock.detach()
        nonce = new_nonce() if connector.auth.nonce_required else ""
        session = Session(client, host, port, self._account, nonce)
        self.total += 1
        if log.debug_on:
            log.debug(f"{session} - Client connection created")
        client.register(self._account)
        info = partial(connector.client_info, session, nonce=nonce)
        expect_connect, auth_timeout = connector.auth.required, opts.auth_timeout
        if len(self.open) >= opts.max_conn:
            error = "maximum connections exceeded"
            self.refused[client.cid] = session
            greeting = self.tls.greeting(info) if self.tls else info()
            client.refuse(greeting, ClosedState.MAX_CONNECTIONS_EXCEEDED, error)
            session.rate_limit(log, "ERR", error)
            return
        self.open[client.cid] = session
        self._account.clients[client.cid] = session
        if self.tls:
            self.tls.start(client, info, expect_connect=expect_connect, auth_timeout=auth_timeout)
        else:
            client.start(info(), expect_connect=expect_connect, auth_timeout=auth_timeout)

    def close(self) -> None:
        """Close all connections but those that are refused: the server shuts down."""
        for session in list(self.open.values()):
            session.close(self._log, ClosedState.SERVER_SHUTDOWN)

    def connections(self) -> list[Connection]:
        """Return the data plane's sides of all connections."""
        sessions = [*self.open.values(), *self.refused.values()]
        return [session.client for session in sessions if session.client]

    def send_info(self) -> None:
        """Send a new INFO to all clients that take one (sendAsyncInfoToClients).

        A client whose first PING has not been answered gets the new one with that answer. These come first:
        when one client has the new INFO, none gets the old one any more.
        """
        begun = []
        for session in self.open.values():
            client = session.client
            if client is None or session.leaving or not session.knows_info():
                continue
            if client.pong_sent or not client.replace_connect_info(self._connector.connect_info(session)):
                begun.append((client, session))
        for client, session in begun:
            client.enqueue_proto(self._connector.client_info(session))

    # -- one client ------------------------------------------------------------------------------------------

    def disconnect(self, cid: int) -> None:
        """Close a client's connection (DisconnectClientByID). Raises KeyError for an unknown client."""
        if cid not in self.open:
            raise KeyError("no such client or leafnode id")
        self.open[cid].close(self._log, ClosedState.KICKED)

    def lame_duck(self, cid: int) -> None:
        """Send a client an INFO with `ldm`, so that it reconnects to another server (LDMClientByID).

        Raises KeyError for an unknown client, and for one that cannot be sent an INFO (yet).
        """
        session = self.open.get(cid)
        if session is None or session.client is None:
            raise KeyError("no such client id")
        if not session.takes_info():
            raise KeyError(
                "client does not support Lame Duck Mode or is not ready to receive the notification"
            )
        if self._log.debug_on:
            self._log.debug(f"{session} - Sending Lame Duck Mode info to client")
        session.client.enqueue_proto(self._connector.client_info(session, ldm=True))

    # -- events ----------------------------------------------------------------------------------------------

    def serve(self, events: "EventTable") -> None:
        """Handle the events about clients."""
        for event, handler in (
            (EV_CONNECT, self._on_connect),
            (EV_INFO, self._on_info),
            (EV_CLOSED, self._on_closed),
        ):
            events.on(event, handler, (CLIENT,))
        Reporting(self._log, self._session).serve(events, (CLIENT,))

    def _session(self, source: Connection | None) -> Session | None:
        if not isinstance(source, Connection):
            return None
        return self.open.get(source.cid) or self.refused.get(source.cid)

    def _on_connect(self, source: Connection | None, a: int, b: int, data: object) -> bool:
        return self._answer(source, data, self._connector.process_connect)

    def _on_info(self, source: Connection | None, a: int, b: int, data: object) -> bool:
        return self._answer(source, data, self._connector.process_info)

    def _answer(
        self, source: Connection | None, data: object, answer: Callable[[Session, bytes], None]
    ) -> bool:
        """Answer a verb for which the connection waits; return whether it may have resumed."""
        session = self._session(source)
        if session and session.cid not in self.open and isinstance(data, bytes):
            return False  # a refused connection, which is being closed
        return answer_punt(session, data, answer, self._log)

    def _on_closed(self, source: Connection | None, reason: int, num_subs: int, data: object) -> None:
        session = self._session(source)
        if session is None:
            return
        cid, account, why = session.cid, session.account, ClosedState(reason)
        (self.open if cid in self.open else self.refused).pop(cid)
        self._gone()
        was_in = cid in account.clients
        session.tell_left_out(self._log)
        session.closed(why, num_subs, data if isinstance(data, bytes) else b"")
        self.closed.append(session)
        if events := self._connector.events():
            if was_in:
                events.conns_update(account)
            events.disconnected(session)
        if self._log.debug_on:
            self._log.debug(f"{session} - Client connection closed: {why}")
