"""What is said of a file that there is not, that is empty, or that is packed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_json


def said(path: Path) -> str:
    with pytest.raises(InputError) as error:
        read_json(path)
    return str(error.value)


def test_the_file_or_folder_that_is_missing_is_named_and_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "modern.json").write_text("{}")
    misspelt = tmp_path / "weights" / "modren.json"
    assert said(misspelt) == f"{misspelt}: no such file (did you mean 'modern.json'?)"
    folder = tmp_path / "wieghts"
    assert said(folder / "modern.json") == (
        f"{folder / 'modern.json'}: the folder {folder} does not exist (did you mean 'weights'?)"
    )


def test_a_common_ending_is_no_likeness(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("{}")
    assert said(tmp_path / "w.json").endswith("w.json: no such file")


def test_a_link_to_nothing_is_one(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "gone.json")
    assert said(tmp_path / "link.json").endswith("link.json: a link to nothing")


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("\n")
    assert said(tmp_path / "empty.json").partition(". ")[0].endswith("empty.json: the file is empty")


def test_the_command_that_unpacks_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a b.tar.gz").write_bytes(gzip.compress(b"x"))
    assert said(tmp_path / "a b.tar.gz").endswith(f"To use a file in it: tar -xzf '{tmp_path / 'a b.tar.gz'}'")
