"""Subjects: validity, wildcards, coverage and collision. A str is encoded as UTF-8."""

def valid_subject(subject: bytes | str) -> bool:
    """Return whether it has no empty token, no white space, and no token behind `>` (IsValidSubject)."""

def valid_literal_subject(subject: bytes | str) -> bool:
    """Return whether it has no empty token and no wildcard; ignores white space (IsValidLiteralSubject)."""

def valid_publish_subject(subject: bytes | str) -> bool:
    """Return whether it is valid and has no wildcard (IsValidPublishSubject)."""

def has_wildcard(subject: bytes | str) -> bool:
    """Return whether a token is `*` or `>` (subjectHasWildcard)."""

def token_count(subject: bytes | str) -> int:
    """Return the number of tokens, empty ones included; 0 for the empty subject (numTokens)."""

def subset_match(subject: bytes | str, test: bytes | str) -> bool:
    """Return whether `test` matches all that `subject` matches (subjectIsSubsetMatch).

    Both may have wildcards.
    """

def collide(a: bytes | str, b: bytes | str) -> bool:
    """Return whether both match some literal subject (SubjectsCollide)."""

def literal_match(literal: bytes | str, subject: bytes | str) -> bool:
    """Return whether `subject` matches `literal`, in which `*` and `>` are ordinary (matchLiteral)."""
