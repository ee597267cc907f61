"""Subject transforms: what a subject becomes under a mapping or an import."""

class SubjectTransform:
    """What subjects that match `src` become: `dest`, in which $1 and {{functions}} stand for parts of them.

    An empty `src` is ">". `strict` is for imports, which must be reversible: only wildcards, and all of them.
    Raises ValueError with nats-server's text.
    """

    src: bytes
    dest: bytes

    def __init__(self, src: bytes | str, dest: bytes | str, *, strict: bool = False) -> None: ...
    def match(self, subject: bytes | str) -> bytes | None:
        """What a literal subject becomes; None when it does not match or is not valid."""
    def transform_subject(self, subject: bytes | str) -> bytes:
        """What a subject that matches becomes, without asking whether it does."""
    def reverse(self) -> SubjectTransform | None:
        """The transform back; None when there is none."""

def transform_tokenize(subject: bytes | str) -> bytes:
    """A subject with wildcards as a destination: foo.*.* becomes foo.$1.$2."""

def transform_untokenize(subject: bytes | str) -> tuple[bytes, list[bytes]]:
    """A destination as a subject with wildcards, and the place holders in their order: the inverse."""

def validate_mapping(src: bytes | str, dest: bytes | str) -> None:
    """Raise ValueError, as nats-server words it, unless `dest` can be a mapping's destination for `src`."""
