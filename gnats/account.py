"""Accounts: isolated subject spaces. For now the global account is the only one."""

from gnats.core import account

GLOBAL_ACCOUNT = "$G"


class Account(account.Account):
    """An account; what its messages need is in the base class."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
