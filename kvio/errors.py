"""The two kinds of error that the command line tells in one line; every other one is a fault of ours."""


class UserError(Exception):
    """What was asked cannot be done; the message says what, where, how much, and what to try.  Exit code 2."""


class FailedError(Exception):
    """It was begun and could not be carried out; the message says why.  Exit code 1."""


class KVIOError(UserError):
    """Reading or writing KV bytes failed, or would have given a wrong number."""
