"""What a person sees while a sweep runs: time left, round, case, last sample; one line per round in a log."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from bench.record.sample import Sample
from bench.record.units import format_seconds, format_tokens, printable


class SweepProgress:
    """Hears from the runner what goes on and shows it on `console`.

    On a terminal a bar fills up with the budget; elsewhere each round and phase is one plain line.

    Args:
        budget_s: seconds that the sweep may take.
        spent_s, num_samples: what earlier parts of it have taken.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        console: Console,
        budget_s: float,
        *,
        spent_s: float = 0.0,
        num_samples: int = 0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._budget_s = budget_s
        self._now_s = now_s
        self._start_s = now_s() - spent_s
        self._round = ""
        self._num_samples = num_samples
        self._bar = _make_bar(console, self._left) if console.is_terminal else None
        self._task: TaskID | None = None
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("starting", total=budget_s, last="")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds of the budget that have gone by."""
        return self._now_s() - self._start_s

    def on_notice(self, text: str) -> None:
        """Something to be known before time is spent: a line that stays."""
        self._console.print(Text(f"notice: {printable(text)}"), soft_wrap=True)

    def on_phase(self, text: str) -> None:
        """A new phase begins: preparing files, checking, analysing."""
        self._format_message(printable(text))

    def on_round(self, number: int, lengths: Sequence[int]) -> None:
        """Round `number`, from 0, begins and will measure these prefix lengths."""
        self._round = f"round {number + 1}"
        count = f"{len(lengths)} length{'s' * (len(lengths) != 1)}"
        span = f", {format_tokens(min(lengths))} to {format_tokens(max(lengths))} tokens" if lengths else ""
        self._format_message(f"{self._round}: {count}{span}")

    def on_sample(self, sample: Sample) -> None:
        """A sample is on the disk."""
        self._num_samples += 1
        if self._bar is None or self._task is None:
            return
        case = sample.case
        last = (
            f"{case.arm} {format_tokens(case.prefix_tokens)} tokens: {format_seconds(sample.outcome.seconds)}"
        )
        self._update(description=self._round or "measuring", last=last)

    def on_answer(self, text: str) -> None:
        """The answer so far, in a few words."""
        self._format_message(printable(text))

    def close(self) -> None:
        """End the view; may be called twice."""
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._task = None, None

    def _format_message(self, text: str) -> None:
        if self._bar is None:
            line = f"[{self.elapsed_s:6.1f} s of {self._budget_s:.0f} s, {self._num_samples} samples] {text}"
            self._console.print(Text(line), soft_wrap=True)
        else:
            self._update(description=text, last="")

    def _update(self, *, description: str, last: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=min(self.elapsed_s, self._budget_s),
                description=description,
                last=last,
            )

    def _left(self) -> str:
        left_s = max(0, round(self._budget_s - self.elapsed_s))
        return f"{left_s // 60}:{left_s % 60:02d} left"


class _TimeLeft(ProgressColumn):
    """What is left of the budget, right at every refresh and not only when a sample arrives."""

    def __init__(self, format_left: Callable[[], str]) -> None:
        super().__init__()
        self._format_left = format_left

    def render(self, task: Task) -> Text:
        """Minutes and seconds."""
        return Text(self._format_left())


def _make_bar(console: Console, format_left: Callable[[], str]) -> Progress:
    # markup off: a name from outside must not be read as a style
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        _TimeLeft(format_left),
        TextColumn("{task.fields[last]}", markup=False, style="dim"),
        console=console,
        transient=True,
    )
