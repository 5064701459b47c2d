"""`doctor`: what this machine can measure."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from bench.cli.options import SCRATCH, Json, make_scratch, option, out


def doctor(
    data_dir: Annotated[Path, option("Folder on the drive to be measured.")] = SCRATCH,
    as_json: Json = False,
) -> None:
    """Check what this machine can measure, and name the remedy where it cannot."""
    make_scratch(data_dir)
    from bench.machine.doctor.examine import examine  # loads torch, which --help must not cost

    findings = examine(data_dir)
    if as_json:
        out.print(json.dumps([asdict(finding) for finding in findings], indent=1), markup=False)
        return
    for finding in findings:
        out.print(f"{finding.status:8} {finding.topic:14} {finding.what}", markup=False)
        if finding.remedy:
            out.print(f"{'':23} → {finding.remedy}", markup=False)
