"""``mnb bundle``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from milabench_ng.cli.named_files import KeyFile, WeightsPath, Writes
from milabench_ng.cli.options import Force
from milabench_ng.fleet.bundling import pack_fleet
from milabench_ng.fleet.folder import is_fleet
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain, quoted
from milabench_ng.model.units import counted, format_bytes
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.opening import is_bundle


def bundle(
    folder: Path,
    /,
    *,
    weights: WeightsPath = None,
    sign: KeyFile = None,
    output: Annotated[Path | None, Writes(), Parameter(name=["--output", "-o"])] = None,
    force: Force = False,
) -> int:
    """Pack a result folder or a fleet folder into one file that can be sent and verified.

    The file has all records, the manifest, the ledger, the logs, the weights and a packing list with the SHA-256 of
    every file and the reported numbers. The same folder always gives the same bytes. The bundle of a fleet has what
    every node sent, and no weights.

    Exit code: 0, or 2 for bad input.

    Example: mnb bundle results --sign ~/.ssh/id_ed25519

    Parameters
    ----------
    folder
        A result folder of `mnb jobs`, or a fleet folder.
    weights
        File of weights for the score. Default: the shipped file of the suite.
    sign
        Sign the packing list with this private key (ssh-keygen -Y sign, namespace "mnb").
    output
        The file to write. Default: FOLDER.bundle.tar.gz, next to the folder.
    """
    if is_bundle(folder):
        raise InputError(f"{plain(folder)}: a bundle already. To check it, run mnb verify {quoted(folder)}")
    if is_fleet(folder):
        if weights is not None:
            raise InputError("--weights: not for a fleet, whose bundle has no score. Give it to mnb report")
        made = pack_fleet(folder, output, key=sign, force=force)
    else:
        made = pack(folder, output, weights=weights, key=sign, force=force)
    print(f"bundle:  {made.path}{' (signed)' if made.signed else ''}")
    print(f"SHA-256: {made.sha256}")
    print(f"files:   {made.files} ({format_bytes(made.bytes)})")
    if made.left:
        print(f"{counted(made.left, 'launch')} not run yet: breaks R12. To finish the run: mnb resume {quoted(folder)}")
    if made.altered:
        more = f", and {len(made.altered) - 1} more" if len(made.altered) > 1 else ""
        print(f"{made.altered[0]}{more}: breaks R13. For all of it, run mnb verify {quoted(made.path)}")
    if made.left_out:
        print(f"left out, because they belong to no run: {', '.join(map(repr, made.left_out))}")
    return 0
