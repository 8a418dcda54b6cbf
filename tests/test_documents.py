"""What the documents say is so: generated parts are current, links lead somewhere, every metric and command exists."""

import base64
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.config import Config as AgentConfig
from checks.runbook import condition_table, conditions_page
from controller.config import Config as ControllerConfig
from controller.signature import headers
from tests.test_repository import ROOT, tracked

README = (ROOT / "README.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def test_the_condition_table_is_current() -> None:
    """README's table is what `python -m checks.runbook --table` prints."""
    found = re.search(r"<!-- conditions:begin[^\n]*-->\n(.*?)<!-- conditions:end -->", README, re.DOTALL)
    assert found is not None
    assert found[1] == condition_table()


def test_the_run_book_is_current() -> None:
    """docs/conditions.md is what `python -m checks.runbook` prints."""
    assert (ROOT / "docs" / "conditions.md").read_text() == conditions_page()


def _metrics() -> Iterator[str]:
    for program in ("agent", "controller", "controller/scheduler/shell"):
        text = (ROOT / program / "metrics.py").read_text()
        for kind, name in re.findall(r'(\w+)\(\s*"(nodemend_\w+)"', text):
            if kind == "Info":
                continue  # the version, which nobody looks up
            yield name if kind != "Counter" or name.endswith("_total") else f"{name}_total"


@pytest.mark.parametrize("metric", sorted(_metrics()))
def test_every_metric_is_described(metric: str) -> None:
    """Whoever sees a metric finds it in docs/operations.md, under the name that Prometheus shows."""
    assert re.search(rf"`{metric}(\{{[^`]*\}})?`", OPERATIONS)


def test_every_described_metric_exists() -> None:
    """No alert is written on a metric that went away."""
    described = set(re.findall(r"nodemend_\w+", OPERATIONS))
    assert described <= set(_metrics())


def test_ports_are_the_programs_own() -> None:
    """The ports in the documents are the defaults in the code."""
    ports = [config().listen.rpartition(":")[2] for config in (AgentConfig, ControllerConfig)]
    assert f"| port | {ports[0]} | {ports[1]} |" in OPERATIONS


def test_the_documented_verification_judges_rightly() -> None:
    """The code that docs/webhook.md gives to receivers accepts what the controller signs, and nothing else."""
    text = (ROOT / "docs" / "webhook.md").read_text()
    (snippet,) = re.findall(r"```python\n(import base64.*?)```", text, re.DOTALL)
    scope: dict[str, Callable[..., bool]] = {}
    exec(compile(snippet, "docs/webhook.md", "exec"), scope)  # noqa: S102 - our own document
    secrets = [base64.b64encode(bytes([number]) * 24).decode() for number in (1, 2, 3)]
    keys = [base64.b64decode(secret) for secret in secrets[:2]]
    signed = dict(headers(keys, message_id="inc-1-1-oncall", at=datetime.now(UTC), body=b"{}"))
    judged = [scope["is_genuine"](f"whsec_{secret}", signed, b"{}") for secret in secrets]
    assert judged == [True, True, False]
    assert not scope["is_genuine"](f"whsec_{secrets[0]}", signed, b"{ }")


def _links(text: str) -> Iterator[str]:
    outside_code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", outside_code):
        if "://" not in target:
            yield target


def test_links_between_documents_lead_somewhere() -> None:
    """Every relative link names a file, and its heading where it names one."""
    broken = []
    for path in (p for p in tracked() if p.suffix == ".md"):
        for target in _links(path.read_text()):
            name, _, heading = target.partition("#")
            file = path if not name else (path.parent / name).resolve()
            if not file.exists() or (heading and file.suffix == ".md" and heading not in _anchors(file)):
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
