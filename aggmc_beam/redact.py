"""Credentials that settings may hold, such as the password in an address, are not repeated in output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_NAMES = r"[\w.-]*(?:token|secret|passw(?:or)?d|pwd|signature|credential|api-?_?key|access-?_?key|sig)[\w.-]*"
_USER = re.compile(r"(?<=://)[^/\s@'\"]+(?=@)")
_QUERY = re.compile(rf"(?<=[?&;])({_NAMES})=[^&;\s'\"]*", re.IGNORECASE)
_KEY = re.compile(_NAMES, re.IGNORECASE)


def redacted(value: Any) -> Any:
    """The same plain data or text without what looks like a credential.

    Those are user and password before the host of an address, the values of query parameters named like
    a token, key or signature, and all values of keys named like that.

    >>> redacted({"files": "https://ann:pw@host/x.csv?sig=abc&day=1", "token": "abc"})
    {'files': 'https://***@host/x.csv?sig=***&day=1', 'token': '***'}
    """
    if isinstance(value, str):
        return _QUERY.sub(rf"\1={HIDDEN}", _USER.sub(HIDDEN, value))
    if isinstance(value, Mapping):
        return {
            key: HIDDEN
            if isinstance(key, str) and isinstance(v, str) and _KEY.fullmatch(key)
            else redacted(v)
            for key, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(v) for v in value]
    return value
