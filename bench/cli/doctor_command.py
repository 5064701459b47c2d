"""`doctor`: what this machine can measure."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from bench.cli.options import SCRATCH, Json, make_scratch, option, out


def doctor(
    data_dir: Annotated[Path, option("the folder whose drive is to be measured")] = SCRATCH,
    as_json: Json = False,
) -> None:
    """What this machine can measure, and why not the rest."""
    make_scratch(data_dir)
    from bench.machine.doctor.examine import (
        examine,  # loads torch, which no other command needs in this process
    )

    findings = examine(data_dir)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
        return
    for finding in findings:
        out.print(f"{finding.status:8} {finding.topic:14} {finding.what}", markup=False)
        if finding.remedy:
            out.print(f"{'':23} → {finding.remedy}", markup=False)
