"""Structured logs: one JSON object a line on stderr, those of Beam and of warnings included."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import datetime, timezone
from typing import Any, TextIO

LOGGER = logging.getLogger("aggmc")
#: A user and password, or a key, within an address.
_SECRET = re.compile(
    r"(?<=://)[^/\s@]+@|(?<=[?&])(?:access_token|token|key|password|secret|sig)=[^&\s]+", re.I
)
_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}


class JsonFormatter(logging.Formatter):
    """time, level, logger, message and run; then the fields that were given as `extra`, and a traceback.

    Everything outside of ASCII and every control character is escaped, so that data which find their way
    into a message can neither end the line nor steer a terminal.
    """

    def __init__(self, run: str = "") -> None:
        super().__init__()
        self.run = run

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "run": self.run,
        }
        found |= {name: value for name, value in vars(record).items() if name not in _KNOWN}
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(_clean(found), default=str)


def _clean(value: Any) -> Any:
    """Without what addresses may hold of secrets."""
    if isinstance(value, str):
        return _SECRET.sub("", value)
    if isinstance(value, dict):
        return {key: _clean(v) for key, v in value.items()}
    return [_clean(v) for v in value] if isinstance(value, list | tuple) else value


def configure(stream: TextIO | None = None) -> JsonFormatter:
    """Write all logs as JSON lines: ours from INFO on, those of others from WARNING on.

    The formatter is handed back, to be told the name of the run once it is known.
    """
    formatter = JsonFormatter()
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(formatter)
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    LOGGER.setLevel(logging.INFO)
    logging.captureWarnings(True)
    return formatter
