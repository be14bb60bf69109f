"""What pipelines that run in this process have put out. Functions of a module are not copied."""

FOUND: dict[str, list] = {}


def keep(element, name):
    FOUND.setdefault(name, []).append(element)
