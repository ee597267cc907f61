"""The profiling endpoint."""

import asyncio
import json
import re
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from gnats import Server
from gnats.errors import ServerError

from .conftest import Connect, Start
from .peer import Log

pytestmark = pytest.mark.timeout(60)


def prof_port(server: Server) -> int:
    assert server._profiler
    return server._profiler.port


async def get(server: Server, page: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{prof_port(server)}/debug/pprof/{page}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_the_index_names_pages_that_exist(start: Start) -> None:
    server = await start(prof_port=-1)
    status, index = await get(server, "")
    assert status == 200
    pages = re.findall(r'<a href="(\w+)">', index)
    assert {"profile", "threads", "tasks", "pollers", "heap", "allocs", "block", "cmdline"} == set(pages)
    for page in pages:
        status, _ = await get(server, f"{page}?seconds=0.01")
        assert status == (404 if page == "block" else 200), page
    assert (await get(server, "nosuch"))[0] == 404


async def test_the_body_of_a_request_is_not_unpacked(start: Start) -> None:
    server = await start(prof_port=-1)
    reader, writer = await asyncio.open_connection("127.0.0.1", prof_port(server))
    header = b"Host: a\r\nContent-Encoding: deflate\r\nContent-Length: 5\r\n"
    async with asyncio.timeout(30):
        for _ in range(2):  # on one connection: a broken body would end it
            writer.write(b"GET /debug/pprof/ HTTP/1.1\r\n" + header + b"\r\nplain")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.split()[1] == b"200"
            length = re.search(rb"Content-Length: (\d+)", head)
            assert length
            await reader.readexactly(int(length[1]))
    writer.close()


async def test_the_log_names_the_port(start: Start) -> None:
    log = Log()
    server = await start(log, prof_port=-1)
    assert log.with_text("profiling port") == [f"[INF] profiling port: {prof_port(server)}"]


async def test_the_cpu_profile_names_what_is_busy(start: Start) -> None:
    server = await start(prof_port=-1)

    async def keep_busy() -> None:
        while True:
            spin()
            await asyncio.sleep(0)

    def spin() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    busy = asyncio.create_task(keep_busy())
    status, text = await get(server, "profile?seconds=0.5")
    busy.cancel()
    assert status == 200
    lines = text.splitlines()
    assert all(re.fullmatch(r"\S.*;.* \d+", line) for line in lines)
    weights = {stack: int(weight) for stack, weight in (line.rsplit(" ", 1) for line in lines)}
    assert any("spin" in stack.rsplit(";", 1)[1] for stack in weights)
    assert max(weights, key=weights.__getitem__).startswith("MainThread;")


@pytest.mark.parametrize("seconds", ["x", "0", "-1", "601", "nan"])
async def test_a_time_that_cannot_be_is_refused(start: Start, seconds: str) -> None:
    server = await start(prof_port=-1)
    assert (await get(server, f"profile?seconds={seconds}"))[0] == 400


async def test_one_measurement_at_a_time(start: Start) -> None:
    server = await start(prof_port=-1)
    assert server._profiler
    async with server._profiler._measuring:
        assert (await get(server, "allocs?seconds=0.01"))[0] == 503
        assert (await get(server, "profile?seconds=0.01"))[0] == 503
    assert (await get(server, "allocs?seconds=0.01"))[0] == 200


async def test_threads_and_tasks_are_shown_with_their_stacks(start: Start, io_threads: int) -> None:
    server = await start(prof_port=-1)
    threads, tasks = (await get(server, "threads"))[1], (await get(server, "tasks"))[1]
    assert threads.count("thread gnats-io-") == io_threads
    assert "test_profiling.py" in tasks


async def test_pollers_tell_what_they_did(start: Start, connect: Connect, io_threads: int) -> None:
    server = await start(prof_port=-1)
    for _ in range(4):
        peer = await connect(server)
        await peer.connected()
        await peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
    page = json.loads((await get(server, "pollers"))[1])
    pollers = page["pollers"]
    assert len(pollers) == io_threads + 1
    serving = pollers[1:] or pollers
    assert sum(poller["clients"] for poller in serving) >= 4
    assert all(poller["in_msgs"] and poller["reads"] and poller["wakeups"] for poller in serving)
    assert all(poller["timers"] >= poller["clients"] > 0 for poller in serving)
    assert page["slow_consumers"] == 0


async def test_memory_is_shown_as_the_kernel_and_python_see_it(start: Start) -> None:
    server = await start(prof_port=-1)
    text = (await get(server, "heap"))[1]
    assert re.search(r"^Rss: +\d+ kB$", text, re.MULTILINE) or "not available" in text
    assert re.search(r"^blocks allocated: \d+$", text, re.MULTILINE)


async def test_what_blocks_the_loop_is_noted(start: Start) -> None:
    log = Log()
    server = await start(log, prof_port=-1, prof_block_rate=1_000_000)
    assert log.with_text(
        "[WRN] Block profiling is enabled (rate 1000000), this may have a performance impact"
    )
    async with asyncio.timeout(30):
        text = ""
        while "hold_up_the_loop" not in text:
            hold_up_the_loop()
            status, text = await get(server, "block")
            assert status == 200
    await server.reload(replace(server.opts, prof_block_rate=0))  # else its thread looks again and again


def hold_up_the_loop() -> None:
    time.sleep(0.3)


async def test_a_rate_without_a_port_is_said_to_do_nothing(start: Start) -> None:
    log = Log()
    await start(log, prof_block_rate=1)
    assert log.with_text("[WRN] prof_block_rate has no effect without prof_port")


async def test_the_ports_file_has_its_url(start: Start, tmp_path: Path) -> None:
    server = await start(prof_port=-1, ports_file_dir=str(tmp_path))
    assert server._ports_file
    ports = await asyncio.to_thread(server._ports_file.path.read_text)
    assert json.loads(ports)["profile"] == [f"http://127.0.0.1:{prof_port(server)}"]


async def test_a_port_in_use_ends_the_start(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ServerError,
            match=f"error starting profiler: listen tcp 127.0.0.1:{port}: bind: address already in use",
        ):
            await start(prof_port=port)


async def test_a_shutdown_does_not_wait_for_a_profile(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def profile(seconds: float, cancel: threading.Event) -> dict[str, int]:
        loop.call_soon_threadsafe(begun.set)
        cancel.wait(seconds)
        return {}

    monkeypatch.setattr("gnats.monitor.profiling.cpu_profile", profile)
    server = await start(prof_port=-1)
    request = asyncio.create_task(get(server, "profile?seconds=600"))
    async with asyncio.timeout(30):
        await begun.wait()
        await server.shutdown()
        assert await request == (200, "")
