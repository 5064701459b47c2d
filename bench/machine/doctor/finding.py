"""One thing that the doctor looked at."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "skipped", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and what to do about it."""

    topic: str  # what was looked at, in a word or two
    # "skipped" cannot be measured here; "warning" makes numbers suspect; "missing" stops a sweep
    status: Status
    what: str  # what was seen, one line
    remedy: str = ""  # a command or a setting, empty when there is nothing to do
