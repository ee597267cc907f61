from collections.abc import Callable

from gnats.bench.results import LatencyResult, RequestResult
from gnats.bench.target import Target

class Lines:
    def close(self) -> None: ...

class Requests(Lines):
    def __init__(
        self,
        target: Target,
        *,
        requesters: int = 1,
        responders: int = 1,
        window: int = 1,
        size: int = 128,
        subject: str = "bench.request",
        responders_at: Target | None = None,
        fresh: bool = False,
        timeout: float = 30.0,
    ) -> None: ...
    def run(
        self,
        requests: int,
        *,
        timeout: float = 60.0,
        progress: Callable[[int], None] | None = None,
    ) -> RequestResult: ...
    def __enter__(self) -> Requests: ...
    def __exit__(self, *exc: object) -> None: ...

class Latency(Lines):
    def __init__(
        self,
        target: Target,
        *,
        size: int = 16,
        subject: str = "bench.latency",
        timeout: float = 30.0,
        subscriber_at: Target | None = None,
    ) -> None: ...
    def run(self, messages: int, *, interval: float = 0.0005, timeout: float = 60.0) -> LatencyResult: ...
    def __enter__(self) -> Latency: ...
    def __exit__(self, *exc: object) -> None: ...
