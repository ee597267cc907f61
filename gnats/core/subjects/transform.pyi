"""Subject transforms: the subject that another one becomes under a mapping or an import."""

class SubjectTransform:
    """A transform of subjects that match `src` into `dest`; $1 and {{functions}} in `dest` stand for parts.

    An empty `src` is ">". `strict` is for imports, which must be reversible: only wildcards, and all of them.
    Raises ValueError with nats-server's text.
    """

    src: bytes
    dest: bytes

    def __init__(self, src: bytes | str, dest: bytes | str, *, strict: bool = False) -> None: ...
    def match(self, subject: bytes | str) -> bytes | None:
        """Transform a literal subject; None when it does not match or is not valid."""
    def transform_subject(self, subject: bytes | str) -> bytes:
        """Transform a subject, without checking whether it matches."""
    def reverse(self) -> SubjectTransform | None:
        """Return the inverse transform; None when there is none."""

def transform_tokenize(subject: bytes | str) -> bytes:
    """Turn a subject with wildcards into a destination: foo.*.* becomes foo.$1.$2."""

def transform_untokenize(subject: bytes | str) -> tuple[bytes, list[bytes]]:
    """Turn a destination into a subject with wildcards, and a list of its place holders: the inverse."""

def validate_mapping(src: bytes | str, dest: bytes | str) -> None:
    """Raise ValueError, with nats-server's text, unless `dest` can be a mapping's destination for `src`."""
