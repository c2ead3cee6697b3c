"""``mnb report``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token

from milabench_ng.analysis.scoring.cost import PricePer
from milabench_ng.analysis.statistics.effects import MARGIN
from milabench_ng.cli.named_files import READS_RESULTS, CertificatesFile, GroupsFile, RulesFile, SignersFile, Writes
from milabench_ng.cli.options import (
    FILES,
    RATIOS,
    RULES,
    FileForm,
    Force,
    Fraction,
    Html,
    Money,
    Output,
    PerKwh,
    Switch,
    WeightsOption,
    form_for,
)
from milabench_ng.fleet.bundling import is_fleet_source
from milabench_ng.fleet.folder import listed_sessions
from milabench_ng.fleet.nodes import SCREEN
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain, quoted
from milabench_ng.model.shipped import names
from milabench_ng.present.render.alarms import alarms, alarms_of_launches
from milabench_ng.present.render.cells import Fact
from milabench_ng.present.writers import (
    SuiteName,
    open_output,
    refuse_json,
    tell,
    write_layout,
    write_page,
    write_report,
    write_tables,
)
from milabench_ng.report.reporting import ReportOptions, make_report, make_study


def _occurrences(_: object, tokens: Sequence[Token]) -> tuple[tuple[str, ...], ...]:
    """The words after each ``--compare``."""
    words: list[list[str]] = []
    for token in tokens:
        if token.index == 0:
            words.append([])
        words[-1].append(token.value)
    return tuple(map(tuple, words))


Baselines = Annotated[
    tuple[tuple[str, ...], ...],
    READS_RESULTS,
    Parameter(converter=_occurrences, n_tokens=1, consume_multiple=(1, 1000), negative=()),
]


def report(
    *folders: Path,
    compare: Baselines = (),
    price: Money | None = None,
    tariff: PerKwh | None = None,
    rules: RulesFile = None,
    weights: WeightsOption = None,
    full: Switch = False,
    form: FileForm = None,
    html: Html = None,
    output: Output = None,
    nonce: Annotated[str | None, RULES] = None,
    allowed_signers: Annotated[SignersFile, RULES] = None,
    tsa_certs: Annotated[CertificatesFile, RULES] = None,
    margin: Annotated[Fraction | None, RATIOS] = None,
    per_gpu: Annotated[Switch, RATIOS, Parameter(alias="--compare-gpus")] = False,
    price_per: Annotated[PricePer | None, RATIOS] = None,
    penalize_variance: Annotated[bool, RATIOS] = True,
    layout: Annotated[SuiteName | None, FILES] = None,
    tables: Annotated[Path | None, Writes(folder=True), FILES] = None,
    groups: Annotated[GroupsFile, FILES] = None,
    force: Annotated[Force, FILES] = False,
) -> int:
    """Print score, table and comparisons of a result folder (even during the run), bundle or summary.

    Of a fleet folder, print the verdict on every node.

    Exit code: 0, 1 if a launch failed, the score is invalid or a rule is broken, 2 for bad input. Of a fleet: 1 if a
    node or link is slow, faulty, broken or lost, 3 if one is undecided.

    Example: mnb report results --compare baselines/v100.json --price 15000

    Parameters
    ----------
    folders
        A result folder, a bundle or a summary file, also of milabench 2020. With --layout interference also several,
        each with its own victims.
    compare
        Compare with one or more baselines. They are summary files, result folders, bundles, or names of shipped ones
        (v100, rtx8000, h200, a100; for unet3d unet3d-a100, unet3d-v100 and others; for lambda lambda-v100, lambda-h100
        and others; for io io-rtx4090). Put FOLDER before --compare, or last.
    margin
        Largest difference that does not matter (default: 2%). A ratio is equivalent if its interval is inside 1 ± this,
        and better or worse if it is outside. Of a fleet: how much slower than the median a node may be (default: 3%).
    per_gpu
        Print tests by device, relative to the best device: mean, min and max over launches.
    rules
        Start with the verdict on these rules: a JSON file, or the name of a shipped rule set (standard,
        procurement). See docs/reference/rules-file.md.
    nonce
        With --rules: the nonce that the buyer gave for the run. Overrides the rules.
    allowed_signers
        With --rules: who may sign, a file as in ssh-keygen(1), ALLOWED SIGNERS.
    tsa_certs
        With --rules: certificates of the trusted time-stamping authorities (PEM).
    price
        Price in dollars. RPP is the price divided by the score.
    tariff
        Price of a kWh in dollars, for example 0.20. Adds what the measured power costs, with points per kWh.
    price_per
        Whether the price is for the node (default) or for one GPU.
    penalize_variance
        Apply the variance penalty to each test.
    full
        Print all tables, with all columns and rows.
    layout
        Print the columns of a public suite.
    tables
        Also write every table as a CSV file into this folder.
    groups
        Of a fleet: racks or switches, a file with lines such as "rack1: gpu[001-016]".
    """
    folders, baselines = _sides(folders, compare, layout)
    written = form_for(form, output)
    if len(folders) == 1 and is_fleet_source(folders[0]):
        from milabench_ng.cli.fleet_report import make_fleet_report, print_fleet_report  # numpy

        given = {"--compare": baselines, "--rules": rules, "--nonce": nonce, "--layout": layout, "--tables": tables}
        given |= {"--allowed-signers": allowed_signers, "--tsa-certs": tsa_certs}
        switches = {"--price-per": price_per, "--per-gpu": per_gpu, "--full": full}
        switches |= {"--no-penalize-variance": not penalize_variance, "--tariff": tariff is not None}
        _refuse_of_fleet(folders[0], [option for option, value in (*given.items(), *switches.items()) if value])
        of_fleet = make_fleet_report(folders[0], weights=weights, price=price, groups=groups, margin=margin)
        return print_fleet_report(of_fleet, form=written, html=html, output=output, force=force)
    if groups is not None:
        raise InputError(
            f"--groups {plain(groups)}: {plain(folders[0])} is no fleet folder, and has one node. Leave --groups out"
        )
    if price_per is not None and price is None:
        raise InputError("--price-per needs a price. Add --price")
    refuse_json(layout, written)
    for each in folders:
        _refuse_baseline(each)
    options = ReportOptions(
        price=price,
        price_per=price_per or "node",
        tariff=tariff,
        penalize_variance=penalize_variance,
        margin=MARGIN if margin is None else margin,
        per_gpu=per_gpu,
        series=html is not None,
    )
    folder, *more = folders
    if more:
        asked = {"--rules": rules, "--weights": weights, "--nonce": nonce}
        _refuse_no_study(folders, layout, [option for option, value in asked.items() if value is not None])
        made = make_study(folders, baselines, options)
    else:
        made = make_report(
            folder,
            weights=weights,
            compare_to=baselines,
            rules=rules,
            nonce=nonce,
            allowed_signers=allowed_signers,
            authorities=tsa_certs,
            options=options,
        )
    if tables is not None:
        write_tables(made, tables, force=force)
    if html is not None:
        write_page(made, html, force=force)
    with open_output(output, sys.stdout, force=force) as stream:
        if layout is None:
            write_report(made, written, stream, full=full)
        else:
            write_layout(made, layout, written, stream)
    if per_gpu and made.gpus is None:
        tell([Fact("--per-gpu", "no test ran on two devices or more, each by itself, so none can be compared")])
    if written == "csv":  # which has no place for them
        tell(alarms_of_launches(made) if layout else alarms(made))
    return made.exit_code_of_launches if layout else made.exit_code  # a layout has no score


def _sides(
    folders: tuple[Path, ...], compare: Sequence[Sequence[str]], layout: SuiteName | None
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The folders to report, and the baselines: without a word before ``--compare``, its last one is the folder."""
    named = tuple(chain.from_iterable(compare))
    if folders:
        return folders, named
    asked = " ".join(f"--compare {plain(' '.join(words))}" for words in compare)
    if not compare or len(compare[-1]) == 1:
        why = (
            "unclear which word is the folder. Put it before --compare, or last"
            if len(named) > len(compare)
            else "FOLDER is missing"
        )
        raise InputError(f"report: {why}. Write mnb report FOLDER {asked or '--compare v100'}")
    if layout == "interference" and len(compare[-1]) > 2:
        raise InputError(
            f"report {asked}: unclear which words are folders. Put them first: mnb report FOLDER FOLDER "
            "--compare BASELINE"
        )
    return (Path(named[-1]),), named[:-1]


def _refuse_no_study(folders: Sequence[Path], layout: SuiteName | None, of_one: Sequence[str]) -> None:
    """Say what several folders are good for, where they were given for something else."""
    if fleet := next(filter(is_fleet_source, folders), None):
        raise InputError(f"{plain(fleet)}: a fleet, whose report is of its nodes alone. Name no other folder beside it")
    named = f"{plain(folders[1])}: a second folder"
    if layout != "interference":
        raise InputError(f"{named} needs --layout interference. To compare with it, use --compare {quoted(folders[1])}")
    if of_one:
        raise InputError(f"{named} cannot be combined with {of_one[0]}, which needs a single folder")


def _refuse_of_fleet(folder: Path, options: Sequence[str]) -> None:
    """Say where an option of one node's results can be used."""
    if options:
        there, unpack = (folder, "") if folder.is_dir() else (Path(), f"tar -xzf {quoted(folder)}, then ")
        screens = (one.path for one in listed_sessions(folder) if one.session == SCREEN)
        one = f"mnb report {quoted(min(screens, default=there / 'nodes' / 'NODE' / 'screen.tar.gz'))}"
        raise InputError(f"{options[0]}: not for a fleet. Report on one of its nodes: {unpack}{one}")


def _refuse_baseline(folder: Path) -> None:
    """Say how a shipped baseline is read, where its name stands in place of a folder."""
    name = str(folder)
    if not os.path.lexists(folder) and name in names("baselines"):
        raise InputError(
            f"{name}: no such file or folder. For the shipped baseline, use mnb baseline show {name} or mnb "
            f"report FOLDER --compare {name}"
        )
