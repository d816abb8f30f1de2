"""The error that a user can cause and mend."""


class DaymillError(Exception):
    """What was wrong, where, what was expected, and what to do next; shown without a traceback."""
