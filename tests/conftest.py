"""What all tests share: one sandbox a pytest process, started by the first test that asks for it, and what was really run.

A test that uses the fixture `sandbox` is a `cluster` test, marked so by itself. The programs are found or built before the
first test, since a build outlasts any test's time limit; where the machine lacks something these tests are skipped and the
summary says why. Tests run in two worker processes (pytest-xdist), a file to a worker; `-n 0` runs them in this one.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from sandbox import programs
from sandbox.cluster import Sandbox
from sandbox.gpu_operator import install_device_plugin
from sandbox.install import install
from sandbox.kubelet_needs import why_not_here
from sandbox.kubelet_node import KubeletNode
from sandbox.kubelet_parts import Parts, find_or_build

_CLUSTER_TIMEOUT_S = 300  # two slow cores, and the first of these tests also starts the control plane
_KUBELET_TIMEOUT_S = 1200  # the first of these may also build the image, and fetch what that is made of

# Property tests try the same examples in every run, so that a red run is about a change and not about luck; new ones are
# looked for with `uv run pytest --hypothesis-profile=explore`.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)

_PROGRAMS = pytest.StashKey[dict[str, Path]]()
_CHAIN = pytest.StashKey[str]()
_MISSING = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose how property tests find their examples, unless the command line does."""
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("steady")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the sandbox, before pytest selects by markers, and let the files that take longest begin first.

    A file goes to one worker as a whole: begun last, a long one would keep the others waiting for it.
    """
    for item in items:
        uses = getattr(item, "fixturenames", ())
        if "sandbox" in uses or "kubelet_parts" in uses:
            item.add_marker(pytest.mark.cluster)
        if "kubelet_parts" in uses and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_KUBELET_TIMEOUT_S))
        if item.get_closest_marker("cluster") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_CLUSTER_TIMEOUT_S))
    weights: dict[Path, int] = {}
    for item in items:
        weights[item.path] = max(weights.get(item.path, 0), _weight(item))
    items.sort(
        key=lambda item: -weights[item.path]
    )  # stable: in a file, and among its like, all stays in order


def _weight(item: pytest.Item) -> int:
    """Rank how long a test's file is likely to take."""
    has_faults, has_cluster = (item.get_closest_marker(name) is not None for name in ("faults", "cluster"))
    return 4 * has_faults + 2 * ("kubelet_parts" in getattr(item, "fixturenames", ())) + has_cluster


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Find or build the programs before the workers start, whose output nobody sees."""
    if "not cluster" not in str(config.getoption("markexpr")):
        _find_programs(config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Find or build the programs before the first test; nothing is captured here, so the progress is seen."""
    config = session.config
    if _is_controller(config):
        return
    config.stash[_CHAIN] = "not run (no cluster test was selected)"
    if any(item.get_closest_marker("cluster") for item in session.items) and not config.option.collectonly:
        _find_programs(config)


def _find_programs(config: pytest.Config) -> None:
    config.stash[_CHAIN] = "not run (no cluster test got as far as starting it)"
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    show: Callable[[str], None] = print if reporter is None else reporter.write_line
    missing = getattr(config, "workerinput", {}).get("missing")
    if missing:  # the process that hands us tests has tried already, maybe for a quarter of an hour
        config.stash[_CHAIN] = missing
        return
    try:
        config.stash[_PROGRAMS] = programs.find_or_build(progress=lambda line: show(f"sandbox: {line}"))
    except (programs.MissingProgramError, ValueError) as error:
        show(f"sandbox: {error}")
        config.stash[_CHAIN] = config.stash[_MISSING] = f"not run ({str(error).splitlines()[0]})"
        return
    if why_not_here() is None:
        # The image, made anew after each change of a source, is left to the test that needs it; so is kubelet's failure.
        with suppress(programs.MissingProgramError):
            programs.find_or_build([programs.KUBELET], lambda line: show(f"sandbox: {line}"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker what this machine was found to lack."""
    node.workerinput["missing"] = node.config.stash.get(_MISSING, "")


def _is_controller(config: pytest.Config) -> bool:
    """Say whether this process only hands tests to workers."""
    return bool(getattr(config.option, "tx", None))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that prints the summary what this worker ran."""
    told: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["chain"] = session.config.stash.get(_CHAIN, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker ran; the most real chain of all workers counts."""
    told = getattr(node, "workeroutput", {}).get("chain", "")
    held = node.config.stash.get(_CHAIN, "")
    node.config.stash[_CHAIN] = max(held, told, key=_how_real)


def _how_real(chain: str) -> int:
    """Rank: a node of flesh and blood, then a simulated one, then a reason why not."""
    words = ("not run (no cluster test", "not run", "kwok", "kubelet")
    return max((rank for rank, word in enumerate(words) if chain.startswith(word)), default=-1)


@pytest.fixture(scope="session")
def kubernetes_programs(pytestconfig: pytest.Config) -> dict[str, Path]:
    """The programs of the control plane; skips where this machine lacks what they need."""
    found = pytestconfig.stash.get(_PROGRAMS, None)
    if found is None:
        pytest.skip(f"real chain: {pytestconfig.stash[_CHAIN]}")
    return found


@pytest.fixture(scope="session")
def sandbox(kubernetes_programs: dict[str, Path], pytestconfig: pytest.Config) -> Iterator[Sandbox]:
    """A real Kubernetes with KWOK, shared by all tests of this process: keep to a `namespace` and nodes of your own."""
    with Sandbox(programs=kubernetes_programs, audit=True) as running:
        pytestconfig.stash[_CHAIN] = "kwok"
        yield running


@pytest.fixture(scope="session")
def kubelet_parts(kubernetes_programs: dict[str, Path]) -> Parts:
    """What a real node is made of; skips where this machine lacks what it needs, naming it."""
    assert kubernetes_programs["kubectl"].exists()
    if why := why_not_here():
        pytest.skip(f"no real kubelet on this machine: {why}")
    return find_or_build()


@pytest.fixture(scope="session")
def kubelet_sandbox(kubelet_parts: Parts, kubernetes_programs: dict[str, Path]) -> Iterator[Sandbox]:
    """A Kubernetes of its own with nodemend's manifests and a device plugin, for what runs on real nodes."""
    assert kubelet_parts.kubelet.exists()
    with Sandbox(programs=kubernetes_programs, audit=True) as running:
        install(running)
        install_device_plugin(running)
        yield running


@pytest.fixture(scope="session")
def kubelet_node(
    kubelet_sandbox: Sandbox, kubelet_parts: Parts, pytestconfig: pytest.Config
) -> Iterator[KubeletNode]:
    """A real node of eight simulated GPUs in `kubelet_sandbox`, shared by all tests of this process: leave it healed."""
    with KubeletNode(kubelet_sandbox, "kubelet-1", parts=kubelet_parts) as node:
        pytestconfig.stash[_CHAIN] = "kubelet"
        node.wait_allocatable("nvidia.com/gpu", len(node.gpus))
        yield node


@pytest.fixture(scope="session")
def tell_chain(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Give the function that adds words to the summary's line `real chain: kubelet`."""

    def tell(words: str) -> None:
        pytestconfig.stash[_CHAIN] = f"kubelet, {words}"

    return tell


@pytest.fixture
def namespace(sandbox: Sandbox) -> Iterator[str]:
    """A fresh namespace with its default ServiceAccount; deleted afterwards without waiting."""
    name = f"test-{secrets.token_hex(4)}"
    sandbox.create_namespace(name)
    yield name
    sandbox.kubectl("delete", "namespace", name, "--wait=false")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what stood behind the green dots."""
    terminalreporter.write_line(f"real chain: {config.stash.get(_CHAIN, 'not run (no test ran)')}")
    if why := why_not_here():
        terminalreporter.write_line(f"real kubelet: not on this machine ({why})")
    cases = os.environ.get("NODEMEND_OUTSIDE_CASES")
    terminalreporter.write_line(
        f"outside cases: NODEMEND_OUTSIDE_CASES={cases}"
        if cases
        else "outside cases: not run (NODEMEND_OUTSIDE_CASES is unset)"
    )
