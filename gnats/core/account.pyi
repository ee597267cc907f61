from gnats.core.sublist import Sublist

class Account:
    @property
    def sublist(self) -> Sublist: ...
