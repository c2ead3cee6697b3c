"""Nothing of others is executed, and nothing is written where a link leads."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from milabench_ng.datasets.images.mnist import Mnist
from milabench_ng.datasets.prepare import prepare
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import Profile
from milabench_ng.records.names import write_atomically
from milabench_ng.run.execution.logs import Log
from milabench_ng.run.persistence.resuming import open_writer
from milabench_ng.run.persistence.sessions import make_folder
from milabench_ng.run.planning.devices import choose_devices
from milabench_ng.run.planning.request import RunRequest

SOURCES = sorted((Path(__file__).parents[2] / "milabench_ng").rglob("*.py"))
FORBIDDEN = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput", "input"),
    *("pickle.load", "pickle.loads", "marshal.loads", "shelve.open", "torch.load", "joblib.load", "yaml.load"),
}
UNSAFE = {("shell", True), ("allow_pickle", True), ("weights_only", False)}


def calls(source: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the name that is called."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_no_module_evaluates_text_starts_a_shell_or_loads_a_pickle(source: Path) -> None:
    for name, call in calls(source):
        safe = {(word.arg, ast.unparse(word.value)) for word in call.keywords}
        if name == "torch.load" and ("weights_only", "True") in safe:
            continue
        assert name not in FORBIDDEN, f"{source}:{call.lineno}: {name}"
        assert not {(word, str(value)) for word, value in UNSAFE} & safe, f"{source}:{call.lineno}: {name}"


def test_a_link_called_logs_is_no_result_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "logs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="already contains 'logs'"):
        make_folder(tmp_path / "out")
    (tmp_path / "out" / "logs").unlink()
    (tmp_path / "out" / "logs").symlink_to(tmp_path / "none")
    with pytest.raises(InputError, match="already contains 'logs'"):
        make_folder(tmp_path / "out")
    assert not (tmp_path / "none").exists()


def test_no_link_in_a_result_folder_is_written_through(tmp_path: Path) -> None:
    """Those of a ledger and of a log that lead to a file, and those that would make one."""
    there, missing = tmp_path / "there", tmp_path / "missing"
    there.write_text("")
    for number, target in enumerate((there, missing)):
        folder = make_folder(tmp_path / f"out{number}")
        folder.ledger.symlink_to(target)
        with pytest.raises(InputError, match=r"ledger\.jsonl"):
            open_writer(folder, None)
        with pytest.raises(InputError, match=r"already contains 'ledger\.jsonl'"):
            make_folder(folder.path)
        path = folder.log("s.a", "0.0")
        path.symlink_to(target)
        log = Log(path)
        os.write(log.descriptor, b"said")
        assert (log.in_memory, log.close()) == (True, b"said")
        write_atomically(path, b"said")
        assert not path.is_symlink()
    assert (there.read_text(), missing.exists()) == ("", False)


def test_the_users_own_link_to_a_result_folder_is_followed_once(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    assert make_folder(tmp_path / "out").path == tmp_path / "disk"


def test_a_lock_of_a_data_set_is_no_link(tmp_path: Path) -> None:
    (tmp_path / ".mnb-mnist.lock").symlink_to(tmp_path / "made")
    with pytest.raises(InputError, match="cannot generate mnist"):
        prepare(Mnist(), tmp_path, 1.0, lambda *_: None, 1)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("tenants", "right"), [(2, True), (3, False), (100_000, False), (0, False), (-1, False)])
def test_a_node_without_gpus_has_a_tenant_per_cpu_at_most(tmp_path: Path, tenants: int, right: bool) -> None:
    request = RunRequest(profile=Profile("s", {}, "", ""), tenants=tenants, dataroot=tmp_path, outdir=tmp_path)
    if right:
        assert len(choose_devices((), request, 2, {}).devices) == tenants
        return
    with pytest.raises(InputError, match="--tenants"):
        choose_devices((), request, 2, {})


def test_new_folders_are_not_open_to_the_world(tmp_path: Path) -> None:
    made = make_folder(tmp_path / "out")
    for path in (made.path, made.logs):
        assert not path.stat().st_mode & stat.S_IWOTH
