"""The registry of launchers: the built-in ones and entry points of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from milabench_ng.fleet.launchers.interface import Asked, Launcher, Maker
from milabench_ng.fleet.manifest import LOCAL
from milabench_ng.model.errors import InputError
from milabench_ng.model.similar import meant_or_all

GROUP = "milabench_ng.launchers"
BUILT_IN = (
    EntryPoint(LOCAL, "milabench_ng.fleet.launchers.local:make", GROUP),
    EntryPoint("ssh", "milabench_ng.fleet.launchers.ssh:make", GROUP),
    EntryPoint("slurm", "milabench_ng.fleet.launchers.slurm:make", GROUP),
)


def names() -> tuple[str, ...]:
    """The sorted names of all launchers. Imports none of them."""
    return tuple(sorted({entry.name for entry in (*BUILT_IN, *entry_points(group=GROUP))}))


def make(name: str, asked: Asked) -> Launcher:
    """The launcher called ``name``, for what is asked. Raises InputError if there is none, or it cannot do that."""
    found: list[EntryPoint] = [one for one in (*BUILT_IN, *entry_points(group=GROUP)) if one.name == name]
    if not found:
        raise InputError(f"unknown launcher {name!r}{meant_or_all(name, names())}")
    if len(found) > 1:
        raise InputError(f"two launchers are called {name!r}. Uninstall the package of one")
    try:
        maker: Maker = found[0].load()
    except ModuleNotFoundError as error:
        raise InputError(
            f'launcher {name!r}: the package {error.name} is not installed. Run: pip install "milabench_ng[fleet]"'
        ) from None
    except (ImportError, AttributeError) as error:
        raise InputError(f"launcher {name!r} ({found[0].value}) cannot be imported: {error}") from error
    return maker(asked)
