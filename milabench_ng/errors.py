"""What a user can cause, as exceptions with the exit code that the command line gives for it."""

from __future__ import annotations


class MnbError(Exception):
    """An error that is explained to the user in one message, without a traceback."""

    exit_code = 1


class InputError(MnbError):
    """Bad input: a profile, an option, a file. The message names what was asked, what was found and what to do."""

    exit_code = 2


class DataError(InputError):
    """A file of a data set is missing or damaged."""


class IsolationError(MnbError):
    """The isolation that was required cannot be had on this node."""

    exit_code = 3
