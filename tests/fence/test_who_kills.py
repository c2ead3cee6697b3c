"""Every place of the package that signals a process or removes something, with the reason why it may.

A new one fails here. Processes and groups are for `fence.killing`; a file or folder needs its reason in these lists.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "milabench_ng"
SIGNALS = frozenset(
    {"kill", "killpg", "terminate", "send_signal", "pidfd_send_signal", "pthread_kill", "raise_signal", "tgkill"}
)
"""Names of calls, of whatever object."""
WORDS = frozenset({"cgroup.kill", "cgroup.freeze", "freezer.state", "kill", "pkill", "killall", "scancel", "skill"})
"""Files and programs that signal."""
REMOVALS = frozenset({"unlink", "rmdir", "rmtree", "removedirs", "rename", "renames", "os.remove", "os.replace"})

SIGNALLERS = {
    "fence/killing.py:_send pidfd_send_signal": "the one function: what is held and proved",
    "fence/killing.py:signal_child send_signal": "a child that nobody has waited for keeps its number",
    "fence/killing.py:_kill cgroup.kill": "a group that the run made, by inode, without anybody in it that is spared",
    "fence/slurm_step/step.py:end_as kill": "itself",
    "fence/slurm_step/allocation.py:Step.cancel scancel": "the step that this process had Slurm start, by its id",
    "fence/kernel/holds.py: cgroup.freeze": "is only read",
    "fence/kernel/holds.py: freezer.state": "is only read",
    # What asks the above.
    "fence/backends/kernel_group.py:KernelGroup.kill kill": "fence.killing",
    "fence/backends/none.py:NoneGroup.kill kill": "Followed.kill",
    "fence/backends/slurm.py:SlurmGroup.kill kill": "Followed.kill",
    "fence/backends/slurm.py:SlurmGroup.watch kill": "SlurmGroup.kill",
    "fence/backends/affinity.py:AffinityGroup.watch kill": "NoneGroup.kill",
    "fence/backends/cgroup1.py:Cgroup1Group.watch kill": "KernelGroup.kill",
    "fence/killing.py:sweep kill": "kill in the same module",
    "fence/process_tracking.py:Followed.end kill": "Followed.kill",
    "run/execution/batch.py:BatchRunner._kill kill": "Tenant.kill",
    "run/execution/tenant.py:Tenant._receive kill": "Tenant.kill",
    "run/execution/tenant.py:Tenant.kill kill": "the kill of each group",
}

RESULT = "a file of a result folder that this session has locked"
SET = "of a dataset that it makes or converts, whose lock it holds"
PIECE = "a piece that a process of the same conversion has written into the new folder"
REMOVERS = {
    "fence/killing.py:_remove rmdir": "a group that the run made, by inode, or below it; only if it holds no process",
    "fence/runs.py:RunGroups.__init__ rmdir": "made a line before",
    "fence/runs.py:remove_tops rmdir": "the folder of all runs, under the lock of its parent; only if it is empty",
    "fence/cache_groups.py:CacheGroup.__init__ rmdir": "made a line before",
    "fence/probing/probe.py:_trial rmdir": "made for the trial, under a random name",
    "fence/backends/cgroup2.py:Cgroup2Fence.close rmdir": "the leaf that mnb makes for itself; only if it is empty",
    "run/execution/scratch.py:scratch_folder rmtree": "made by this run, which has its lock",
    "run/execution/scratch.py:remove_dead rmtree": "this user's, with a free lock, which is held meanwhile",
    "run/persistence/sessions.py:opened unlink": f"{RESULT}, without an event",
    "run/persistence/sessions.py:opened rmdir": "a folder that this session made; only if it is empty",
    "run/persistence/result_writer.py:ResultWriter._write unlink": f"{RESULT}, cut short",
    "run/persistence/result_writer.py:ResultWriter._forget unlink": "a copy in --spool of what is now written",
    "run/persistence/result_writer.py:ResultWriter.promise unlink": f"{RESULT}, of a session that never began",
    "run/persistence/spooling.py:forget unlink": "a copy in --spool of what is now written",
    "run/persistence/spooling.py:forget rmdir": "the folder of such copies; only if it is empty",
    "run/persistence/reserve.py:_open unlink": f"{RESULT}: its reserve, or one that a crash left",
    "run/persistence/kept.py:set_aside rename": "somebody else's, which keeps its content under a new name",
    "fleet/adopting.py:adopt unlink": "the ledger of a fleet without a manifest: an adoption that was cut short",
    "fleet/bundling.py:_write unlink": "a temporary name that this command made",
    "fleet/pulling.py:Pull.keep unlink": "an archive in the temporary folder of this command",
    "fleet/pulling.py:_make_way rename": "results of another run, which keep their content under a new name",
    "fleet/pulling.py:_kept replace": "the packed session of a node becomes its later state",
    "tender/new_tender.py:filled rename": "a copy in the temporary folder of this command gets its place",
    "cli/run_and_report.py:execute_into_file rmtree": "made for this command, under a random name",
    "run/persistence/resuming.py:give_names unlink": f"{RESULT}: what a crash cut short",
    "records/names.py:write_temporary unlink": "a temporary name that a dead writer left, or that is not written whole",
    "fleet/network/meetings.py:write_meeting unlink": "retests of the links, of a meeting that is held again",
    "records/names.py:give_name replace": "the temporary name becomes the final one of the same file",
    "workloads/modern/shard_files.py:save replace": "a part becomes the whole in the run's own folder",
    "datasets/conversion.py:convert_real rmtree": SET,
    "datasets/conversion.py:convert_real rename": SET,
    "datasets/prepare.py:_lock unlink": "the lock itself, by its holder",
    "datasets/prepare.py:prepare rmtree": f"a temporary folder {SET}",
    "datasets/prepare.py:_generate rmtree": f"a temporary folder {SET}",
    "datasets/prepare.py:_put rename": f"a twin (it has a manifest) {SET}",
    "datasets/prepare.py:_put rmtree": f"a twin (it has a manifest) {SET}",
    "datasets/tables/ml_20m.py:MovieLens.convert unlink": PIECE,
    "datasets/text/parallel_text.py:_joined unlink": PIECE,
    "datasets/volumes/cremi.py:_join unlink": PIECE,
    "datasets/words.py:join unlink": PIECE,
}


def named(tree: ast.AST, where: str) -> Iterator[tuple[str, str]]:
    """All names, attributes and words of a module, with the function that has them."""
    for node in ast.iter_child_nodes(tree):
        inner = where
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{where}.{node.name}" if where else node.name
        if isinstance(node, ast.Attribute):
            yield inner, f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else node.attr
        if isinstance(node, ast.Name):
            yield inner, node.id
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield inner, repr(node.value)
        yield from named(node, inner)


def found(names: frozenset[str], words: frozenset[str] = frozenset()) -> set[str]:
    """``file:function name`` for every place of the package."""
    quoted = {repr(word): word for word in words}
    places = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if not any(name.rpartition(".")[2] in text for name in names | words):
            continue
        for where, name in named(ast.parse(text), ""):
            last = quoted.get(name, name.rpartition(".")[2])
            if name in names or last in names or name in quoted:
                places.add(f"{path.relative_to(PACKAGE)}:{where} {last}")
    return places


def test_only_one_place_signals_processes() -> None:
    assert found(SIGNALS, WORDS) == SIGNALLERS.keys()


def test_whatever_is_removed_is_ours() -> None:
    assert found(REMOVALS) == REMOVERS.keys()


def test_a_new_place_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is written."""
    (tmp_path / "new.py").write_text(
        "import os, shutil\nfrom os import kill\n"
        "class Broom:\n"
        "    def sweep(self, pid): kill(pid, 9); map(os.killpg, [pid], [9]); (lambda p: p.terminate())(pid)\n"
        "def away(path): path.unlink(); os.remove(path); shutil.rmtree(path); x.remove(1); 'a'.replace('b', '')\n"
        "def by_file(group): (group / 'cgroup.kill').write_text('1')\n"
    )
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    signals = {"new.py:Broom.sweep kill", "new.py:Broom.sweep killpg", "new.py:Broom.sweep terminate"}
    assert found(SIGNALS, WORDS) == {*signals, "new.py:by_file cgroup.kill"}
    assert found(REMOVALS) == {"new.py:away unlink", "new.py:away remove", "new.py:away rmtree"}
