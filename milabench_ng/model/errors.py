"""Exceptions for errors that a user can cause, with the command line's exit codes."""

from __future__ import annotations


class MnbError(Exception):
    """An error that the user sees as one message, without a traceback."""

    exit_code = 1


class InputError(MnbError):
    """Bad input: a profile, an option, a file. The message names what was asked, what was found and what to do."""

    exit_code = 2


class DataError(InputError):
    """A file of a dataset is missing or damaged."""


class WrongResultError(MnbError):
    """A device or a disk gave something other than it must: a sum, a copy, what was written."""


class IsolationError(MnbError):
    """The required isolation is not available on this node."""

    exit_code = 3


class InUseError(MnbError):
    """Another run uses CPUs or GPUs that this one asks for: the same command works when that run has ended."""

    exit_code = 5
