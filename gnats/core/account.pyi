from gnats.core.sublist import Sublist
from gnats.core.transform import SubjectTransform

class Account:
    @property
    def sublist(self) -> Sublist: ...
    def set_mappings(self, rows: list[tuple[bytes, list[tuple[SubjectTransform, int]]]]) -> None:
        """What messages published in this account from now on are mapped by: each source with its destinations.

        The first source that matches counts; of its destinations the first whose number is over a random one of 0 to
        99, and without such a one the message is lost. Raises MemoryError.
        """
