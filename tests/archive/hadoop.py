"""A name node and a data node of HDFS (tools/hadoop.sh brings the programs)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

HOME = Path(__file__).parents[2] / "build" / "hadoop"
PATIENCE = 60
# Java packages that this Hadoop needs, and that newer versions of Java do not open.
OPENED = [
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.nio", "sun.nio.ch")),
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
]
LOGGING = """
log4j.rootLogger=INFO,stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d{HH:mm:ss} %p %c{1}: %m%n
log4j.logger.org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit=WARN
"""


def missing() -> str | None:
    """Return why HDFS cannot run here, or None if it can."""
    if shutil.which("java") is None:
        return "Java is not installed (Debian package default-jre-headless)"
    return None if (HOME / ".done").exists() else "Hadoop is not there: sh tools/hadoop.sh"


def configuration(path: Path, settings: Mapping[str, object]) -> None:
    """Write a configuration file of Hadoop."""
    properties = (
        f"<property><name>{name}</name><value>{escape(str(value))}</value></property>"
        for name, value in settings.items()
    )
    path.write_text(f"<configuration>{''.join(properties)}</configuration>")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def _running(command: list[str], log: Path, ready: str) -> Iterator[None]:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stderr=stream)
    try:
        begin = time.monotonic()
        while ready not in log.read_text():
            if process.poll() is not None or time.monotonic() > begin + PATIENCE:
                raise RuntimeError(f"{command[-1]} does not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Run an HDFS with its files in `folder`; yield "host:port". Raises RuntimeError if it does not start."""
    server = f"127.0.0.1:{_free_port()}"
    conf = folder / "conf"
    conf.mkdir(parents=True)
    configuration(
        conf / "core-site.xml", {"fs.defaultFS": f"hdfs://{server}", "hadoop.tmp.dir": folder / "data"}
    )
    configuration(
        conf / "hdfs-site.xml",
        {
            "dfs.replication": 1,
            "dfs.webhdfs.enabled": "false",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.http-address": "127.0.0.1:0",
            "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0",
        },
    )
    (conf / "log4j.properties").write_text(LOGGING)
    scratch = folder / "tmp"
    scratch.mkdir()
    java = ["java", *OPENED, f"-Djava.io.tmpdir={scratch}", "-Xmx256m", "-cp", f"{conf}:{HOME}:{HOME}/jars/*"]
    name_node = "org.apache.hadoop.hdfs.server.namenode.NameNode"
    subprocess.run([*java, name_node, "-format"], check=True, capture_output=True, timeout=PATIENCE)
    with ExitStack() as nodes:
        nodes.enter_context(_running([*java, name_node], folder / "name.log", "RPC up at"))
        data_node = "org.apache.hadoop.hdfs.server.datanode.DataNode"
        nodes.enter_context(
            _running([*java, data_node], folder / "data.log", "Successfully sent block report")
        )
        yield server
