from collections.abc import Callable, Sequence

from gnats.bench.results import PubSubResult
from gnats.bench.target import Target

class PubSub:
    subscribe_seconds: float
    def __init__(
        self,
        target: Target,
        *,
        publishers: int = 1,
        subjects: Sequence[str] = ("bench",),
        payloads: Sequence[bytes] = (),
        subscriptions: Sequence[Sequence[str]] = (),
        subscribers_at: Target | None = None,
        queue: str = "",
        size: int = 128,
        fanout: int | None = None,
        window: int = 16777216,
        timeout: float = 60.0,
    ) -> None: ...
    def run(
        self,
        messages: int,
        *,
        timeout: float = 60.0,
        rate: float = 0.0,
        settle: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> PubSubResult: ...
    def settle(self, *, timeout: float = 60.0) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> PubSub: ...
    def __exit__(self, *exc: object) -> None: ...
