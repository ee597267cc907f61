from typing import Any

from gnats.bench.results import StreamResult
from gnats.bench.target import Target

class Streams:
    def __init__(self, target: Target, *, timeout: float = 30.0) -> None: ...
    def api(
        self, subject: str, body: dict[str, Any] | None = None, *, timeout: float = 30.0
    ) -> dict[str, Any]: ...
    def publish(
        self,
        subject: str,
        messages: int,
        *,
        size: int,
        window: int,
        subjects: int = 1,
        timeout: float = 120.0,
    ) -> StreamResult: ...
    def get(
        self,
        stream: str,
        subject: str,
        messages: int,
        *,
        window: int,
        subjects: int = 1,
        timeout: float = 120.0,
    ) -> StreamResult: ...
    def push(
        self, stream: str, messages: int, config: dict[str, Any], *, timeout: float = 120.0
    ) -> StreamResult: ...
    def pull(
        self, stream: str, messages: int, config: dict[str, Any], *, batch: int, timeout: float = 120.0
    ) -> StreamResult: ...
    def close(self) -> None: ...
    def __enter__(self) -> Streams: ...
    def __exit__(self, *exc: object) -> None: ...
