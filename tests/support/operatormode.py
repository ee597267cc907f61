"""Stand-ins for the server and its log, to test OperatorMode and resolvers on their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gnats.auth.account_jwt import ClaimAccount


class Hook:
    """A server that keeps the names of updated, expired and forgotten accounts."""

    def __init__(self) -> None:
        self.updates: list[list[str]] = []
        self.updated = asyncio.Event()
        self.expired: asyncio.Queue[str] = asyncio.Queue()
        self.forgotten: list[str] = []

    def update_accounts(self, accounts: Sequence[ClaimAccount]) -> None:
        self.updates.append([account.name for account in accounts])
        self.updated.set()

    def expire_account(self, account: ClaimAccount) -> None:
        self.expired.put_nowait(account.name)

    def forget_account(self, account: ClaimAccount) -> None:
        self.forgotten.append(account.name)


class Log:
    """A log that keeps its lines, without their levels."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def notice(self, text: str) -> None:
        self.lines.append(text)

    warn = error = debug = notice
