"""Subjects: validity, wildcards, which of them cover or meet each other."""

def valid_subject(subject: bytes | str) -> bool:
    """Can this be subscribed to: no empty token, no white space, nothing after `>`? (IsValidSubject)"""

def valid_literal_subject(subject: bytes | str) -> bool:
    """No empty token and no wildcard, white space not looked at. (IsValidLiteralSubject)"""

def valid_publish_subject(subject: bytes | str) -> bool:
    """Valid, and without wildcards. (IsValidPublishSubject)"""

def has_wildcard(subject: bytes | str) -> bool:
    """Is a token of it `*` or `>`? (subjectHasWildcard)"""

def token_count(subject: bytes | str) -> int:
    """How many tokens, empty ones included; 0 for the empty subject. (numTokens)"""

def subset_match(subject: bytes | str, test: bytes | str) -> bool:
    """Does `test` match all that `subject` matches? Either may hold wildcards. (subjectIsSubsetMatch)"""

def collide(a: bytes | str, b: bytes | str) -> bool:
    """Is there a literal subject that both match? (SubjectsCollide)"""

def literal_match(literal: bytes | str, subject: bytes | str) -> bool:
    """Does `subject` match `literal`, whose own `*` and `>` are ordinary characters? (matchLiteral)"""
