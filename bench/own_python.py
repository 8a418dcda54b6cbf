"""A Python of its own for what is measured, as an image holds one: copied, compiled, and shared with no other process.

Proportional set size divides a page among all who have it mapped. A node has one agent; this machine may run a dozen Python
programs, and beside them the agent's interpreter and libraries would seem to cost nothing. So it gets copies of both, and
compiled bytecode beside each module: what is compiled at the start leaves its memory behind.
"""

import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import msgspec

from bench.outcome import NotMeasured

# What the agent runs with. Not kubernetes, which it does not import in a cluster (kube.kubeconfig).
_DISTRIBUTIONS = (
    "h2", "hpack", "hyperframe", "msgspec", "nvidia-ml-py", "prometheus-client", "structlog", "tenacity", "urllib3",
)  # fmt: skip
_PACKAGES = ("agent", "checks", "kube")
_LEFT_OUT = ("site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3")
_COMPILE_WITHIN_S = 300


class OwnPython(msgspec.Struct, frozen=True, kw_only=True):
    """The copy: its program, its modules' folder, and what must be in the environment of whoever runs it."""

    program: Path
    modules: Path
    environment: dict[str, str]


def copy_python(folder: Path) -> OwnPython:
    """Copy this interpreter, what the agent needs and the agent. Raises NotMeasured where that cannot be done."""
    library = folder / "lib"
    stdlib = library / f"python{sysconfig.get_python_version()}"
    modules = stdlib / "site-packages"
    program = folder / "bin" / "python3"
    try:
        program.parent.mkdir(parents=True)
        shutil.copy2(Path(getattr(sys, "_base_executable", sys.executable)).resolve(), program)
        shutil.copytree(
            sysconfig.get_path("stdlib"), stdlib, ignore=shutil.ignore_patterns(*_LEFT_OUT, "config-*")
        )
        if sysconfig.get_config_var("Py_ENABLE_SHARED"):
            name = sysconfig.get_config_var("INSTSONAME")
            shutil.copy2(Path(sysconfig.get_config_var("LIBDIR")) / name, library / name)
        for name in _DISTRIBUTIONS:
            _copy_distribution(name, modules)
        _copy_ours(modules)
    except (OSError, shutil.Error, PackageNotFoundError) as error:
        raise NotMeasured(f"this Python cannot be copied to {folder}: {error}") from error
    environment = {
        "PYTHONHOME": str(folder),
        "LD_LIBRARY_PATH": str(library),
        "PYTHONDONTWRITEBYTECODE": "",  # empty is as unset
        "PYTHONPATH": "",
    }
    _compile(OwnPython(program=program, modules=modules, environment=environment))
    return OwnPython(program=program, modules=modules, environment=environment)


def _copy_distribution(name: str, modules: Path) -> None:
    for file in distribution(name).files or ():
        if ".." in file.parts or file.is_absolute() or file.suffix == ".pyc":
            continue  # commands belong to no agent, and bytecode is made anew
        target = modules / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(str(file.locate())), target)


def _copy_ours(modules: Path) -> None:
    root = Path(__file__).parents[1]
    for name in _PACKAGES:
        shutil.copytree(root / name, modules / name, ignore=shutil.ignore_patterns("__pycache__"))
    # The metadata alone, which names our version.
    for file in distribution("nodemend").files or ():
        if file.name == "METADATA":
            target = modules / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(str(file.locate())), target)


def _compile(python: OwnPython) -> None:
    """Compile all of it. Raises NotMeasured where a module of ours is not compiled after that."""
    command = [str(python.program), "-m", "compileall", "-q", str(python.modules.parent)]
    done = subprocess.run(
        command,
        env=python.environment,
        capture_output=True,
        text=True,
        timeout=_COMPILE_WITHIN_S,
        check=False,
    )
    if not list((python.modules / "agent" / "__pycache__").glob("runtime.*.pyc")):
        raise NotMeasured(
            f"{' '.join(command)}: status {done.returncode}: {(done.stdout + done.stderr)[-500:]}"
        )
