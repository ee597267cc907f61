"""Accounts: a name and the subscriptions made in it. For now the global account is the only one."""

from gnats.core.sublist import Sublist

GLOBAL_ACCOUNT = "$G"


class Account:
    """An isolated subject space."""

    __slots__ = ("name", "sublist")

    def __init__(self, name: str) -> None:
        self.name = name
        self.sublist = Sublist()
