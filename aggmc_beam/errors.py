"""The one exception that callers need to know."""


class InputError(ValueError):
    """Something given to the library is wrong; the message says what, and what would be right."""
