from collections.abc import Sequence

from gnats.bench.target import Target

class Fleet:
    connect_seconds: float
    def __init__(
        self,
        target: Target,
        count: int,
        *,
        timeout: float = 30.0,
        parallel: int = 64,
        elsewhere: Target | None = None,
        first_elsewhere: int = 0,
    ) -> None: ...
    @property
    def count(self) -> int: ...
    def exchange(self, first: int, buffers: Sequence[bytes], *, timeout: float = 30.0) -> float: ...
    def close(self) -> None: ...
    def __enter__(self) -> Fleet: ...
    def __exit__(self, *exc: object) -> None: ...
