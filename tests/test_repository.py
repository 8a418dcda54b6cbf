"""The repository keeps its own promises: size, names, words, logs, programs, examples, and tables that are current."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = ("agent", "bench", "checks", "cli", "controller", "kube", "sandbox")

MOST_LINES = 400
BANNED_MODULES = {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager", "lib", "core"}

# `noun.past_verb`: what happened to what, so that a log can be searched by either.
LOG_EVENT = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}

# Written in pieces, so that this file does not contain what it forbids.
FOREIGN = {
    "a machine path": re.compile(r"(?<![\w.-])/(?:work|root|home)/(?!\.\.\.)|/tmp" + r"/(?:kb|plan)\b"),
    "a registry host": re.compile(
        r"files\.python" + r"hosted\.org|://pypi\.(?:org|python)|proxy\.go" + r"lang\.org"
    ),
    "a word of how it was written": re.compile(
        r"\bthis sess" + r"ion\b|\bbuil" + r"der [A-H]\b|\bplan" + r"\.md\b", re.IGNORECASE
    ),
}


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that git tracks or would track; where there is no git (a source archive), every file of the packages."""
    git = shutil.which("git")
    if git is not None and (ROOT / ".git").exists():
        command = [git, "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
        return tuple(ROOT / name for name in names if name and (ROOT / name).is_file())
    folders = (*PACKAGES, "tests", "docs", "manifests", ".ci")
    return tuple(path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())


def _named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def _texts() -> Iterator[tuple[Path, str]]:
    for path in tracked():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    """Every Python file, parsed once."""
    return tuple((path, ast.parse(path.read_text())) for path in tracked() if path.suffix == ".py")


def test_every_module_is_short_enough_to_read() -> None:
    """A file past 400 lines has outgrown one idea."""
    long = {_named(p): len(p.read_text().splitlines()) for p, _ in modules()}
    assert {name: lines for name, lines in long.items() if lines > MOST_LINES} == {}


def test_modules_are_named_for_what_they_hold() -> None:
    """A module called after nothing collects everything."""
    assert [_named(path) for path, _ in modules() if path.stem in BANNED_MODULES] == []


def test_every_module_says_what_it_is_for() -> None:
    """A module of the product with code in it starts with a docstring."""
    silent = [
        _named(path)
        for path, tree in modules()
        if _package(path) in PACKAGES and tree.body and ast.get_docstring(tree) is None
    ]
    assert silent == []


def test_nothing_is_patched() -> None:
    """Fakes stand behind Protocols; a patched module passes tests that the real one would fail."""
    found = [
        f"{_named(path)}:{node.lineno}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt | ast.expr) and _patches(node)
    ]
    assert found == []


def _patches(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module=str(module)):
            return module in ("mock", "unittest.mock") or (
                module == "unittest" and any(alias.name == "mock" for alias in node.names)
            )
        case ast.Import(names=names):
            return any(alias.name in ("mock", "unittest.mock") for alias in names)
        case ast.Attribute(value=ast.Name(id="monkeypatch"), attr="setattr"):
            return True
    return False


def test_the_repository_speaks_of_the_project_alone() -> None:
    """No path, host or word of a machine or of a working session is in any file."""
    found = [
        f"{_named(path)}:{number}: {what}"
        for path, text in _texts()
        for number, line in enumerate(text.splitlines(), start=1)
        for what, pattern in FOREIGN.items()
        if pattern.search(line)
    ]
    assert found == []


def test_log_events_are_constant_and_well_formed() -> None:
    """An event is a literal `noun.past_verb`; what varies goes into keys."""
    wrong = [
        f"{_named(path)}:{call.lineno}"
        for path, tree in modules()
        if _package(path) in PACKAGES
        for call in _log_calls(tree)
        if not _is_event(call)
    ]
    assert wrong == []


def _log_calls(tree: ast.Module) -> Iterator[ast.Call]:
    loggers = {
        target.id if isinstance(target, ast.Name) else target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and _makes_logger(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name | ast.Attribute)
    } | {"log", "logger", "_log", "_logger"}
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr=method)
            ):
                if name in loggers and method in LOG_METHODS:
                    yield node


def _makes_logger(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "get_logger" for node in ast.walk(value))


def _is_event(call: ast.Call) -> bool:
    match call.args:
        case [ast.Constant(value=str(event))]:
            return LOG_EVENT.fullmatch(event) is not None
    return False


@pytest.mark.parametrize("program", [pytest.param(name, id=name) for name in PROJECT["project"]["scripts"]])
def test_every_program_answers_for_help(program: str, tmp_path: Path) -> None:
    """Each console script resolves to a function, and `--help` works with no cluster, no GPU and no home."""
    module_name, function = PROJECT["project"]["scripts"][program].split(":")
    assert callable(getattr(importlib.import_module(module_name), function))
    code = (
        f"import sys; from {module_name} import {function}; sys.argv[0] = {program!r}; sys.exit({function}())"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": ""}
    answer = subprocess.run(
        [sys.executable, "-c", code, "--help"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "usage:" in answer.stdout


def test_every_kind_has_a_commented_example() -> None:
    """Whoever writes the first object of a kind starts from an example that says what its fields mean."""
    kinds = {
        match.group(1)
        for folder in ("crds", "crds-kai")
        for path in (ROOT / "manifests" / folder).glob("*.yaml")
        for match in re.finditer(r"^    kind: (\w+)$", path.read_text(), re.MULTILINE)
    }
    examples = {path: path.read_text() for path in (ROOT / "manifests" / "examples").rglob("*.yaml")}
    shown = {
        kind
        for kind in kinds
        for text in examples.values()
        if re.search(rf"^kind: {kind}$", text, re.MULTILINE) and text.lstrip().startswith("#")
    }
    ours = {"NodeHealth", "Remediation", "RemediationPolicy"}
    assert kinds == shown == ours | {"Queue", "PodGroup", "Topology"}


def test_the_licence_is_there() -> None:
    """Apache-2.0 as pyproject.toml says, in full."""
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_every_pin_is_exact() -> None:
    """What was tested is what is installed, down to what the dependencies bring."""
    uv = PROJECT["tool"]["uv"]
    pins = [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *(pin for group in PROJECT["dependency-groups"].values() for pin in group if isinstance(pin, str)),
        *uv["constraint-dependencies"],
        *uv["build-constraint-dependencies"],
    ]
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[\w.+!-]+", pin)] == []
