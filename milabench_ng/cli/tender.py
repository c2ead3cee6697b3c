"""``mnb tender``: the folder of a tender, to begin one or to rehearse with."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import cyclopts
import msgspec
from rich.prompt import Prompt

from milabench_ng.analysis.summary.folder import find_results
from milabench_ng.cli.named_files import READS_RULES
from milabench_ng.cli.options import Several, amount
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain, short
from milabench_ng.tender.demo import write_demo
from milabench_ng.tender.new_tender import (
    README,
    NewTender,
    Vendor,
    guide,
    public_key,
    require_comparable,
    require_empty,
    usual_reference,
    write_tender,
)
from milabench_ng.verification.opening import load_source
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.rules_file import load_rules

tender = cyclopts.App(name="tender", help="Begin a tender, or rehearse one.")


@tender.command
def init(
    folder: Path,
    /,
    *,
    rules: Annotated[str, READS_RULES] = "standard",
    vendor: Several = (),
    key: Several = (),
    name: str | None = None,
    nonce: str | None = None,
    reference: str | None = None,
    currency: str = "$",
) -> int:
    """Write the files of a tender into a new folder: rules, bids, allowed signers and a README with the commands.

    Without --vendor, a terminal is asked for the vendors.

    Exit code: 0, or 2 for bad input and for a folder that is not empty.

    Example: mnb tender init tender-2026-17 --vendor acme=300000 --key acme=acme.pub

    Parameters
    ----------
    folder
        The folder to write, which must be empty or not there.
    rules
        The rules to begin with: a shipped set (standard, procurement) or a JSON file.
    vendor
        NAME=PRICE: somebody who bids, and the price of a node. May be repeated.
    key
        NAME=FILE: the vendor's public key. May be repeated; keys can be added later.
    name
        Name of the tender (default: that of the folder).
    nonce
        The nonce, if you give it now.
    reference
        What bids are measured in: a shipped baseline, results, or a vendor's NAME.bundle.tar.gz (default: h200, or the
        first vendor's node for rules of other suites than standard).
    currency
        Of the prices.
    """
    require_empty(folder)
    demanded = load_rules(rules)
    prices = dict(_pair(each, "--vendor", "acme=300000") for each in vendor)
    if len(prices) < len(vendor):
        raise InputError("--vendor: a vendor is named twice. Name each one once")
    files = dict(_pair(each, "--key", "acme=acme.pub") for each in key)
    if not prices and sys.stdin.isatty():
        prices, files = _asked()
    vendors = _vendors(prices, files)
    made = NewTender(
        rules=msgspec.structs.replace(demanded, name=name or folder.resolve().name, nonce=nonce or demanded.nonce),
        vendors=vendors,
        reference=_reference(reference, demanded, vendors, folder) if reference else usual_reference(demanded),
        currency=currency,
    )
    write_tender(folder, made, guide(made))
    print(f"tender: {plain(folder)}; {README} has the commands")
    return 0


@tender.command
def demo(folder: Path, /) -> int:
    """Write a small tender to rehearse with: signed bundles of three vendors, of which one broke a rule.

    Needs neither a GPU nor torch. Its README has the commands to try.

    Exit code: 0, or 2 for a folder that is not empty.

    Example: mnb tender demo demo-tender

    Parameters
    ----------
    folder
        The folder to write, which must be empty or not there.
    """
    write_demo(folder)
    print(f"tender: {plain(folder)}; {README} has the commands to try")
    return 0


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise InputError(f"{option} {short(repr(text))}: expected NAME=VALUE, such as {option} {example}")
    return name, value


def _reference(name: str, rules: Rules, vendors: Sequence[Vendor], folder: Path) -> str:
    """The reference as the bids file in ``folder`` names it. Raises InputError for what is not there, or cannot be
    compared with any bid, unless it is a bundle that a vendor will send."""
    if name in (one.bundle for one in vendors):
        return name
    find_results(name, "--reference")
    require_comparable(load_source(name), name, rules)
    return os.path.relpath(name, folder) if os.path.exists(name) else name


def _asked() -> tuple[dict[str, str], dict[str, str]]:
    """Prices and key files by vendor, from the questions at a terminal."""
    prices: dict[str, str] = {}
    files: dict[str, str] = {}
    while name := _answer(f"{'another ' if prices else ''}vendor (empty: no more)"):
        while not (price := _answer(f"price of a node of {name}")):
            pass
        prices[name] = price
        if file := _answer(f"file of the public key of {name} (empty: later)"):
            files[name] = file
    return prices, files


def _answer(question: str) -> str:
    try:
        return Prompt.ask(question, default="", show_default=False).strip()
    except EOFError:
        print()
        raise InputError("the questions ended without an answer. Give --vendor NAME=PRICE instead") from None


def _vendors(prices: Mapping[str, str], files: Mapping[str, str]) -> tuple[Vendor, ...]:
    for name in files:
        if name not in prices:
            raise InputError(f"--key {name}: no vendor of that name. Add --vendor {name}=PRICE")
    return tuple(
        Vendor(
            name=name,
            price=amount(price, f"--vendor {name}"),
            key=public_key(Path(files[name]), f"--key {name}=") if name in files else None,
        )
        for name, price in prices.items()
    )
