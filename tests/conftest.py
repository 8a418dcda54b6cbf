"""What all tests share: one sandbox a pytest process, started by the first test that asks for it, and what was really run.

A test that uses the fixture `sandbox` is a `cluster` test, marked so by itself. The programs are found or built before the
first test, since a build outlasts any test's time limit; where the machine lacks something these tests are skipped and the
summary says why.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import programs
from sandbox.cluster import Sandbox

_CLUSTER_TIMEOUT_S = 300  # two slow cores, and the first of these tests also starts the control plane
_PROGRAMS = pytest.StashKey[dict[str, Path]]()
_CHAIN = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the sandbox, before pytest selects by markers."""
    for item in items:
        if "sandbox" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
        if item.get_closest_marker("cluster") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_CLUSTER_TIMEOUT_S))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Find or build the programs before the first test; nothing is captured here, so the progress is seen."""
    config = session.config
    wanted = any(item.get_closest_marker("cluster") for item in session.items)
    config.stash[_CHAIN] = "not run (no cluster test was selected)"
    if not wanted or config.option.collectonly:
        return
    config.stash[_CHAIN] = "not run (no cluster test got as far as starting it)"
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    show = print if reporter is None else reporter.write_line
    try:
        config.stash[_PROGRAMS] = programs.find_or_build(progress=lambda line: show(f"sandbox: {line}"))
    except (programs.MissingProgramError, ValueError) as error:
        show(f"sandbox: {error}")
        config.stash[_CHAIN] = f"not run ({str(error).splitlines()[0]})"


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
    if "not faults" in str(config.getoption("markexpr")):
        terminalreporter.write_line("phase x fault table: not run (uv run pytest -m faults runs it)")
    cases = os.environ.get("NODEMEND_OUTSIDE_CASES")
    terminalreporter.write_line(
        f"outside cases: NODEMEND_OUTSIDE_CASES={cases}"
        if cases
        else "outside cases: not run (NODEMEND_OUTSIDE_CASES is unset)"
    )
