"""The examples in the documents are what the commands print today, and the README is short and names every command."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pages import PAGES, ROOT, blocks, inline_code, name

from tests.one_server import OneServer

Printed = Callable[[str], list[str]]
README = ROOT / "README.md"
COMPARED = "mnb report baselines/h200.json --compare v100 --price 15000"
WHOLE = 60
"""How many lines the page that explains a comparison shows at least."""
_OF_SHIPPED = re.compile(r"mnb [a-z]+ baselines/\S+[^>]*")
"""Commands on what the project ships: they print the same everywhere."""


def examples() -> Iterator[tuple[Path, str, str]]:
    """Page, command and shown output, wherever a command on shipped files stands before its output."""
    for page in PAGES:
        found = blocks(page)
        for (language, command), (follows, output) in itertools.pairwise(found):
            if language == "sh" and follows == "text" and _OF_SHIPPED.fullmatch(command.strip()):
                yield page, command.strip(), output


EXAMPLES = list(examples())
IDS = [f"{name(page)}-{command}" for page, command, _ in EXAMPLES]


@pytest.fixture(scope="module")
def printed(one_server: OneServer) -> Printed:
    """The lines of a command."""

    @functools.cache
    def lines(command: str) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", "230")
            done = one_server.mnb(*command.split()[1:], cwd=ROOT)
        assert done.returncode in (0, 1), done.stderr  # 1: a verdict of FAIL
        return [line.rstrip() for line in done.stdout.splitlines()]

    return lines


def missing(shown: list[str], given: list[str]) -> list[str]:
    """What is shown and not printed, or printed only above what is shown before it."""
    rest = iter(given)
    return [line for line in shown if line not in rest]


def shown(example: str) -> list[str]:
    """The lines of an example; in brackets stands what is left out."""
    return [line for line in example.splitlines() if line and not line.startswith("[")]


@pytest.mark.parametrize(("command", "example"), [each[1:] for each in EXAMPLES], ids=IDS)
def test_every_line_of_the_example_is_printed_in_this_order(printed: Printed, command: str, example: str) -> None:
    assert missing(shown(example), printed(command)) == []


def test_the_bids_of_the_quick_start_are_ranked_as_it_shows(printed: Printed, tmp_path: Path) -> None:
    found = blocks(ROOT / "docs" / "quickstart" / "buyer.md")
    at = found.index(("sh", "mnb bids bids.json\n"))
    (_, asked), _, (_, example) = found[at - 1 : at + 2]
    bids = tmp_path / "bids.json"
    bids.write_text(asked.replace('"baselines/', f'"{ROOT}/baselines/'))
    assert missing(shown(example), printed(f"mnb bids {bids}")) == []


def test_the_readme_and_the_page_on_comparisons_have_examples() -> None:
    assert README in {page for page, _, _ in EXAMPLES}
    [whole] = [text for page, line, text in EXAMPLES if (page.stem, line) == ("compare-and-price", COMPARED)]
    assert len(shown(whole)) >= WHOLE


def test_a_line_that_is_not_printed_or_stands_elsewhere_is_found() -> None:
    assert missing(["a", "c"], ["a", "b", "c"]) == []
    assert missing(["a", "d"], ["a", "b", "c"]) == ["d"]
    assert missing(["c", "a"], ["a", "b", "c"]) == ["a"]


def test_the_readme_is_short() -> None:
    text = README.read_text()
    for _, block in blocks(README):
        text = text.replace(block, "")
    assert len(text.split()) <= 700


def test_the_readme_names_every_command() -> None:
    from milabench_ng.cli.command_list import FUNCTIONS

    listed = {code.removeprefix("mnb ") for code in inline_code(README) if code.startswith("mnb ")}
    assert {function.partition("_")[0] for function in FUNCTIONS} <= listed
