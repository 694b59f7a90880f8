"""`regard doctor`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from regard.cli.options import json_flag
from regard.files import to_json

if TYPE_CHECKING:
    from regard.view.machine import Check


@click.command("doctor")
@json_flag
def command(as_json: bool) -> int:
    """Check whether regard works on this machine, and say what to do where it does not."""
    from regard.progress import ProgressBar
    from regard.view.machine import examine

    with ProgressBar() as bar:
        machine = examine(bar.stage)
    if as_json:
        print(to_json({"passed": machine.passed, **dataclasses.asdict(machine)}, indent=2))
    else:
        versions = " · ".join(f"{name} {version or 'missing'}" for name, version in machine.versions.items())
        print(versions)
        print(
            f"{machine.system}, cores: {machine.cores}, torch threads: {machine.torch_threads or 'unknown'}, "
            f"vectors: {machine.vectors or 'unknown'}, products: {machine.products or 'unknown'}"
        )
        print("\n".join(_line(check) for check in machine.checks))
    return 0 if machine.passed else 1


def _line(check: Check) -> str:
    """What is missing but not required is a note, not a failure."""
    if check.passed:
        return f"ok    {check.name}" + (f": {check.detail}" if check.detail else "")
    return f"{'FAIL' if check.required else 'note'}  {check.name}: {check.detail}; {check.remedy}"
