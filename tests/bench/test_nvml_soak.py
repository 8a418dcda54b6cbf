"""That rounds of NVML leave nothing behind: as many as a test may take, of those that `nodemend-bench nvml` runs."""

from pathlib import Path

from bench.nvml_soak import soak
from tests.sandbox.nvml_program import built_or_skip


def test_rounds_and_children_leave_nothing_behind(tmp_path: Path) -> None:
    """Neither files, threads, processes nor memory, in the child or in the agent, and the child stays small."""
    built_or_skip()
    soaked = soak(tmp_path, 300, lambda _: None)
    for who, before, after in soaked.grown():
        # The agent's process is this one, where what other tests left may end meanwhile.
        assert after.files <= before.files, who
        assert after.threads <= before.threads, who
        assert after.children <= before.children, who
    child = soaked.child
    assert child[-1].private - child[0].private < 512, "kB"
    # 10 MiB with compiled bytecode, 23 where Python may not write it; `nodemend-bench agent` measures the former.
    assert child[-1].pss < 32 * 1024, "kB"
    assert soaked.rounds >= 300
    assert soaked.events > 0
    assert soaked.children == 4
