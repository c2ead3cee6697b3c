"""A session with AMD SMI, and the reader of one GPU (AMD SMI Python API reference, ROCm documentation).

The kernel driver is looked for first: without it the library is not even imported. The package prints to standard
output when it does not find ``libamd_smi.so``, and then fails with one of several errors.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# amdsmi.h: not supported, not yet implemented, no symbol in the library, no permission, no data, no such file
_UNSUPPORTED = frozenset({2, 3, 5, 10, 40, 52})
_NOT_APPLICABLE = "N/A"
"""What the Python interface writes in place of a number that a device does not have."""
_ASK = "Run amd-smi list to check the driver"


class GpuReader:
    """Reads one GPU. What cannot be read is None, and named in ``unsupported`` or ``errors``."""

    def __init__(self, module: Any, handle: Any) -> None:
        self.module = module
        self._handle = handle
        self.unsupported: set[str] = set()
        """Names of values unavailable with this GPU, driver or permission."""
        self.errors: dict[str, str] = {}
        """Other failures, by name of the value."""

    def ask(self, name: str, question: str, *args: Any) -> Any:
        """The answer of ``amdsmi_get_<question>``; ``name`` identifies the value if it cannot be read."""
        function = getattr(self.module, f"amdsmi_get_{question}", None)
        if function is None:  # an older package
            self.unsupported.add(name)
            return None
        try:
            answer = function(self._handle, *args)
        except self.module.AmdSmiException as error:
            if getattr(error, "err_code", None) in _UNSUPPORTED:
                self.unsupported.add(name)
            else:
                self.errors[name] = " ".join(str(error).split())
            return None
        return None if answer == _NOT_APPLICABLE else answer

    def note(self, question: str, values: Mapping[str, object]) -> None:
        """Say of those values that are None why they are, which the answer of ``question`` was to tell."""
        for name in (name for name, value in values.items() if value is None):
            if question in self.errors:
                self.errors[name] = self.errors[question]
            elif name not in self.errors:
                self.unsupported.add(name)


def number(answer: Mapping[str, Any] | None, key: str) -> Any:
    """A number of an answer that has several; None if the device, or an older package, has none."""
    value = None if answer is None else answer.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class Session:
    """An AMD SMI session. ``problem`` says why there is none, where there should be one."""

    def __init__(self, module: Any = None, problem: str | None = None) -> None:
        self.module = module
        self.problem = problem

    def handles(self) -> tuple[Any, ...]:
        """What the library lists, in its order."""
        if self.module is None or self.problem is not None:
            return ()
        try:
            return tuple(self.module.amdsmi_get_processor_handles())
        except self.module.AmdSmiException as error:
            self.problem = _problem(error, _ASK)
            return ()

    def reader(self, handle: Any) -> GpuReader:
        """The reader of a GPU, or of a partition."""
        return GpuReader(self.module, handle)

    def close(self) -> None:
        """End the session; the library stays loaded."""
        if self.module is not None and self.problem is None:
            with contextlib.suppress(self.module.AmdSmiException):
                self.module.amdsmi_shut_down()
            self.problem = "AMD SMI cannot be used: the session is closed"


def open_session(module: Any = None, root: Path = Path("/")) -> Session:
    """Open a session, through ``amdsmi`` unless another module with its interface is given.

    Without the kernel driver ``amdgpu`` there is nothing to ask, which is no problem.
    """
    if module is None:
        if not (root / "sys/module/amdgpu").exists():
            return Session()
        module, problem = _import()
        if module is None:
            return Session(None, problem)
    try:
        module.amdsmi_init()
    except module.AmdSmiException as error:
        return Session(None, _problem(error, _ASK))
    return Session(module)


def _import() -> tuple[Any, str | None]:
    """The package, or why it cannot be used."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            return importlib.import_module("amdsmi"), None
    except ModuleNotFoundError:
        return None, _problem("the Python module amdsmi is not installed", "Run: pip install /opt/rocm/share/amd_smi")
    except (ImportError, KeyError, OSError, AttributeError) as error:  # no library, or one of another version
        remedy = "Install the library of the same ROCm version as the Python module amdsmi"
        return None, _problem(said.getvalue() or error, remedy)


def _problem(why: object, remedy: str) -> str:
    """Why there is no session, in a line: the library writes several."""
    return f"AMD SMI cannot be used: {' '.join(str(why).split())}. {remedy}"
