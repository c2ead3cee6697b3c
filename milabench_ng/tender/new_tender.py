"""A folder for a new tender: rules, bids, allowed signers and a README, as `mnb verify` and `mnb bids` read them."""

from __future__ import annotations

import math
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from milabench_ng.analysis.scoring.weights import find_weights
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_text, require_file
from milabench_ng.model.plain import plain, short
from milabench_ng.model.profile import suite_of
from milabench_ng.model.shipped import baselines_of
from milabench_ng.tender.bids import decode_bids
from milabench_ng.verification.rules import Pin, Rules
from milabench_ng.verification.rules_file import decode_rules, pinned_profile, profile_to_run
from milabench_ng.verification.signing import NAMESPACE

RULES, BIDS, SIGNERS, README = "tender.json", "bids.json", "vendors.txt", "README.md"
DEMANDS = f"--rules {RULES} --allowed-signers {SIGNERS}"
_NONCE_LATER = "When you give the nonce, add it there, and as `--nonce` to the command below."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
"""What names a file and, for ssh-keygen, a signer."""


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who bids."""

    name: str
    price: float
    """Of a node."""
    key: str | None = None
    """The public key; None if it has yet to come."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(f"vendor {short(repr(self.name))}: expected a name of letters, digits and . _ @ + -")

    @property
    def bundle(self) -> str:
        """The name of the file that the vendor sends."""
        return f"{self.name}.bundle.tar.gz"

    @property
    def signer(self) -> str:
        """The vendor's line in the file of allowed signers; a remark without a key."""
        what = f'{self.name} namespaces="{NAMESPACE}"'
        return f"{what} {self.key}" if self.key else f"# the key is missing: {what} ssh-ed25519 AAAA..."


class NewTender(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder is written of."""

    rules: Rules
    vendors: tuple[Vendor, ...]
    reference: str | None = None
    """What bids are measured in; None for the node of the first vendor."""
    currency: str = "$"

    def __post_init__(self) -> None:
        if not self.vendors:
            raise InputError("a tender needs a vendor and a price. Try --vendor acme=300000")


def public_key(file: Path, option: str) -> str:
    """The public key in ``file``, which ``option``, such as ``--key acme=``, named.

    Raises InputError for anything else, such as the private key beside it.
    """
    require_file(file, "Leave it out if the vendor has yet to send it, or make one with ssh-keygen -t ed25519", option)
    text = read_text(file).strip()
    where = f"{option}{plain(file)}"
    if text.startswith("-----BEGIN"):
        raise InputError(f"{where}: this is a private key. Give the public one, {plain(file)}.pub")
    if "\n" in text or not re.match(r"(ssh|ecdsa|sk)-\S+ \S+", text):
        raise InputError(f"{where}: expected a public key, one line such as: ssh-ed25519 AAAA... name")
    return text


def require_empty(folder: Path) -> None:
    """Raise InputError if there is something in ``folder`` already, or if it cannot be one."""
    try:
        full = os.path.lexists(folder) and any(os.scandir(folder))
    except OSError as error:
        raise InputError(f"{plain(folder)}: {error.strerror}. Name another folder") from None
    if full:
        raise InputError(f"{plain(folder)}: the folder is not empty. Name a new one")


@contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """A place to write into, whose content moves into ``folder`` at the end: all of it, or nothing.

    Raises InputError if ``folder`` holds something, or cannot be made, or does not take it all.
    """
    require_empty(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".mnb-", dir=folder) as made:
            yield Path(made)
            for one in tuple(Path(made).iterdir()):
                one.rename(folder / one.name)
    except OSError as error:
        raise InputError(f"{plain(folder)}: {error.strerror}. Name another folder") from None


def ranked_suites(rules: Rules) -> tuple[str, ...]:
    """The suites whose weights the rules rank bids by, or those of the profile that they demand; empty if unknown."""
    if rules.suite_weights:
        return tuple(rules.suite_weights)
    if rules.weights and rules.weights.name:
        return (rules.weights.name,)
    pin = rules.profile
    shipped = pin and (pinned_profile(pin) or pinned_profile(Pin(name=pin.name)))  # an earlier one has the same suites
    return tuple(dict.fromkeys(map(suite_of, map(shipped.id_of, shipped.tests)))) if shipped else ()


def usual_reference(rules: Rules) -> str | None:
    """What bids are measured in by default: None for the first vendor's node."""
    suites = ranked_suites(rules)
    return "h200" if suites == ("standard",) or (not suites and rules.profile is None) else None


def require_comparable(reference: Summary, name: str, rules: Rules) -> None:
    """Raise InputError for a reference, which the user calls ``name``, that lacks a suite: no bid could be ranked."""
    suites = ranked_suites(rules)
    weighted = {suite: file.weights for suite in suites if (file := find_weights(suite))}
    lacking = [suite for suite, weights in weighted.items() if not weights.keys() & reference.tests.keys()]
    if not lacking:
        return
    have = baselines_of(suites) if len(suites) == 1 else ()
    instead = (
        f"such as {', '.join(have)}" if have else "or leave --reference out: the first vendor's node takes its place"
    )
    raise InputError(
        f"--reference {short(name)}: it has no weighted test of {' and '.join(lacking)}, so no bid could be ranked. "
        f"Name results of {' and '.join(suites)}, {instead}"
    )


def write_tender(folder: Path, made: NewTender, readme: str) -> None:
    """Write the files of a tender into a folder that is empty or not there. All are read again as the commands do."""
    files = {
        RULES: _json(_stated(made.rules)),
        BIDS: _json(
            {
                "reference": made.reference or made.vendors[0].bundle,
                "currency": made.currency,
                "bids": {
                    one.name: {"results": one.bundle, "signed_by": one.name, "price": one.price} for one in made.vendors
                },
            }
        ),
        SIGNERS: "".join(f"{one.signer}\n" for one in made.vendors).encode(),
        README: readme.encode(),
    }
    decode_rules(files[RULES], RULES)
    decode_bids(files[BIDS], BIDS)
    with filled(folder) as place:
        for name, content in files.items():
            (place / name).write_bytes(content)


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=4) + b"\n"


def _stated(rules: Rules) -> dict[str, Any]:
    """What the rules demand, without the keys that demand nothing."""
    usual = msgspec.to_builtins(Rules())
    stated: dict[str, Any] = msgspec.to_builtins(rules)
    return {key: value for key, value in stated.items() if key == "schema" or value != usual[key]}


def vendor_command(rules: Rules) -> tuple[str, ...]:
    """The run that the rules ask of a vendor, as its command. Pure."""
    sessions = rules.least_sessions or 1
    words = ["mnb", "jobs", profile_to_run(rules, ""), "--rules", RULES, "--isolation", "full"]
    if rules.repeat:
        words += ["--repeat", str(math.ceil(rules.repeat / sessions))]  # of each session
    if sessions > 1:
        words += ["--sessions", str(sessions), "--session-gap", f"{rules.session_gap_h:g}h"]
    if rules.nonce:
        words += ["--nonce", rules.nonce]
    return (*words, "-o", "results")


_FIRST = "for now the bid of {}: name results of a node that you have, if any"


def guide(made: NewTender) -> str:
    missing = ", ".join(one.name for one in made.vendors if one.key is None)
    keys = f"has no key for {missing} yet. Complete the lines that begin with `#`" if missing else "has all their keys"
    nonce = f"The nonce is `{made.rules.nonce}`." if made.rules.nonce else _NONCE_LATER
    reference = f"All are compared with its `reference`, {made.reference or _FIRST.format(made.vendors[0].name)}."
    verify = "\n".join(f"mnb verify {one.bundle} {DEMANDS}" for one in made.vendors)
    return f"""\
# {made.rules.name}

Publish `{RULES}` with its SHA-256 and the version of `mnb`. {nonce} `{SIGNERS}` {keys}.

A vendor runs

```text
{shlex.join(vendor_command(made.rules))}
mnb bundle results --sign KEY
```

and sends the bundle. Put the bundles here, under the names below,
and run the commands in this folder.

1. Verify each bid. The exit code is 0 if it keeps the rules, and 1 if it breaks one, which the first line names.

```sh
{verify}
```

2. Rank the bids. Their prices are in `{BIDS}`, which also takes power and maintenance. {reference}

```sh
mnb bids {BIDS} {DEMANDS}
```

3. When a node has been delivered, measure it as the bid was, and decide.

```text
mnb accept {made.vendors[0].bundle} results {DEMANDS}
```
"""
