"""The server as a process: signals and shortages of resources. The reference runs the same tests."""

import re
import resource
import signal
from pathlib import Path

import pytest
from support.launch import Launch
from support.servers import TIMEOUT, Server
from support.wire import Connection

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("programs")]

QUIET = b'CONNECT {"verbose":false}\r\n'


def open_descriptors(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def limit_descriptors(server: Server, count: int) -> None:
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (count, 4096))


def test_a_full_descriptor_table_delays_clients_but_loses_none(launch: Launch) -> None:
    server = launch()
    with Connection(server.address) as first:
        first.send(QUIET)
        first.fence()
        limit_descriptors(server, open_descriptors(server))
        start = len(server.log)
        with Waiting(server.address) as late:
            server.wait_log(
                r"\[ERR\] Temporary Client Accept Error\(.*too many open files\), sleeping 10ms", start
            )
            first.send(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
            assert first.fence() == [b"MSG a 1 2\r\nhi\r\n"]
            limit_descriptors(server, 1024)
            late.greeting = late.read_op()
            late.send(QUIET)
            assert late.fence() == []


class Waiting(Connection):
    """A connection that does not read INFO when it connects."""

    def read_op(self) -> bytes:
        return super().read_op() if hasattr(self, "greeting") else b""


def test_lame_duck_mode_tells_clients_and_is_not_ended_by_sigterm(launch: Launch) -> None:
    server = launch()
    with Connection(server.address) as client:
        client.send(b'CONNECT {"verbose":false,"protocol":1}\r\n')
        client.fence()
        client.fence()  # the INFO after CONNECT has come
        server.process.send_signal(signal.SIGUSR2)
        assert b'"ldm":true' in client.read_op()
        with pytest.raises(ConnectionRefusedError):
            Connection(server.address)
        start = len(server.log)
        server.process.send_signal(signal.SIGTERM)
        server.wait_log(r'Trapped "terminated" signal', start)
        client.send(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
        assert client.fence() == [b"MSG a 1 2\r\nhi\r\n"]
        server.process.send_signal(signal.SIGINT)
        assert client.rest() == b""
    assert server.process.wait(TIMEOUT) == 0


def test_lame_duck_mode_without_clients_ends_the_process(launch: Launch) -> None:
    server = launch()
    server.process.send_signal(signal.SIGUSR2)
    assert server.process.wait(TIMEOUT) == 0
    server.wait_log(r"Entering lame duck mode, stop accepting new clients")
    server.wait_log(r"Server Exiting\.\.")


def test_a_hangup_reloads_the_configuration(launch: Launch) -> None:
    server = launch()
    server.conf.write_text(server.conf.read_text() + "\nmax_payload: 8\n")
    with Connection(server.address) as client:
        client.send(QUIET)
        assert client.fence() == []
        server.process.send_signal(signal.SIGHUP)
        server.wait_log(r"Reloaded: max_payload = 8")
        server.wait_log(r"Reloaded server configuration")
        client.fence()  # the connection knows of the change then
        client.send(b"PUB a 9\r\n123456789\r\n")
        assert b"Maximum Payload Violation" in client.rest()


def test_a_second_signal_during_the_shutdown_does_no_harm(launch: Launch) -> None:
    server = launch()
    for _ in range(3):
        server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(TIMEOUT) == 0
    assert len(re.findall(r"Initiating Shutdown", server.log)) <= 1


@pytest.mark.parametrize("first", [signal.SIGUSR2, signal.SIGTERM], ids=["lame duck mode", "shutdown"])
def test_signals_up_to_the_end_of_the_process_do_no_harm(launch: Launch, first: signal.Signals) -> None:
    server = launch()
    server.process.send_signal(first)
    server.wait_log(r"Initiating Shutdown")
    while server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
    assert server.process.returncode == 0
