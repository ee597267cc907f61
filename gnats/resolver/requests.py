"""Replies to the $SYS.REQ.CLAIMS.* and $SYS.REQ.ACCOUNT.*.CLAIMS.* requests (respondToUpdate in accounts.go).

A reply is the JSON object {"server": ..., then these members}; the caller adds "server" and encodes it.
"""

from gnats.resolver.base import Log

Reply = dict[str, object]


def answer(log: Log, account: str, message: str) -> Reply:
    """Log a success, and return the reply."""
    log.debug(f"{message} - {account}" if account else message)
    data: Reply = {"account": account} if account else {}
    return {"data": data | {"code": 200, "message": message}}


def failure(log: Log, account: str, message: str, error: str) -> Reply:
    """Log a failure, and return the reply."""
    log.error(f"{message} - {account} - {error}" if account else f"{message} - {error}")
    data: Reply = {"account": account} if account else {}
    return {"error": data | {"code": 500, "description": f"{message} - {error}"}}
