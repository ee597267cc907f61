"""A parser that records its calls: tests the protocol state machine with bytes alone."""

class ParserProbe:
    calls: list[tuple[object, ...]]
    turns: list[int]
    def __init__(
        self,
        kind: int = 0,
        *,
        headers: bool = True,
        auth: bool = False,
        pedantic: bool = False,
        max_payload: int = ...,
        max_control_line: int = ...,
        has_account: bool = True,
        short_turns: bool = False,
    ) -> None: ...
    @property
    def state(self) -> int: ...
    def feed(self, data: bytes) -> bool: ...
