"""nodemend-controller: parses, wires and exits; no logic.

`--check-config` prints what would be in force. Exit codes: 0 stopped when asked (or checked), 1 leadership lost or the loop
died, 2 bad use or configuration, 3 the machine lacks something (named).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog

from controller.config import Config, ConfigError, load, shown
from controller.process import log_to_stderr, run_replica
from controller.runtime import PROGRAM, Controller
from kube.session import user_agent

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; give its exit status."""
    options = _parser().parse_args(arguments)
    try:
        config = load(options.config)
    except ConfigError as error:
        for problem in error.problems:
            print(f"{PROGRAM}: {problem}", file=sys.stderr)
        return 2
    if options.check_config:
        print(shown(config), end="")
        return 0
    log_to_stderr(options.log_level)
    return _run(config)


def _run(config: Config) -> int:
    log.info("config.loaded", config=shown(config))
    if not config.jobs.image:
        log.warning("config.incomplete", error="jobs.image is not set: no repair and no revalidation can run")
    return run_replica(PROGRAM, lambda on_lost: Controller(config, on_lost=on_lost))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Decides and acts for the fleet: quarantine, drain, repair, proof, return."
    )
    parser.add_argument("--version", action="version", version=user_agent(PROGRAM).replace("/", " "))
    parser.add_argument(
        "--config", type=Path, help="default /etc/nodemend/controller.toml, which may be absent"
    )
    parser.add_argument(
        "--check-config", action="store_true", help="print the effective configuration without secrets, exit"
    )
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], default="info")
    return parser


if __name__ == "__main__":
    sys.exit(main())
