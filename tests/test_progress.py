import io

from rich.console import Console

from bench.report.progress_bar import SweepProgress
from tests.sweeps import make_samples

SAMPLES = make_samples(tokens=(8192,), num_rounds=1, num_samples=2)


class FakeClock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def __call__(self) -> float:
        return self.time_s


def test_a_notice_is_a_line_that_stays_on_a_terminal_too() -> None:
    for terminal in (False, True):
        stream = io.StringIO()
        with SweepProgress(
            Console(file=stream, width=60, force_terminal=terminal, color_system=None),
            120.0,
            now_s=FakeClock(),
        ) as progress:
            progress.on_notice("files in memory [bold]\x1b[31m")
        assert "notice: files in memory [bold][31m\n" in stream.getvalue()


def run_sweep(console: Console) -> None:
    clock = FakeClock()
    with SweepProgress(console, 120.0, now_s=clock) as progress:
        progress.on_phase("preparing [bold]files[/bold]\x1b[31m")
        for number in range(2):
            clock.time_s += 30.25
            progress.on_round(number, (512, 8192))
            for sample in SAMPLES:
                progress.on_sample(sample)
        progress.on_answer("C* = 7,208 tokens")


def test_a_log_gets_one_plain_line_per_round() -> None:
    stream = io.StringIO()
    run_sweep(Console(file=stream, width=40))
    assert stream.getvalue().splitlines() == [
        "[   0.0 s of 120 s, 0 samples] preparing [bold]files[/bold][31m",
        "[  30.2 s of 120 s, 0 samples] round 1: 2 lengths, 512 to 8,192 tokens",
        "[  60.5 s of 120 s, 4 samples] round 2: 2 lengths, 512 to 8,192 tokens",
        "[  60.5 s of 120 s, 8 samples] C* = 7,208 tokens",
    ]


def test_a_sweep_that_is_gone_on_with_counts_what_its_earlier_parts_took() -> None:
    stream = io.StringIO()
    with SweepProgress(
        Console(file=stream), 120.0, spent_s=50.0, num_samples=53, now_s=FakeClock()
    ) as progress:
        progress.on_phase("preparing")
    assert stream.getvalue() == "[  50.0 s of 120 s, 53 samples] preparing\n"


def test_a_log_holds_no_control_characters() -> None:
    stream = io.StringIO()
    run_sweep(Console(file=stream))
    assert not any(ord(character) < 32 and character != "\n" for character in stream.getvalue())


def test_a_terminal_sees_time_left_round_and_last_sample() -> None:
    stream = io.StringIO()
    clock = FakeClock()
    console = Console(file=stream, force_terminal=True, width=120, color_system=None)
    progress = SweepProgress(console, 120.0, now_s=clock)
    progress.on_round(2, (8192,))
    clock.time_s += 45
    progress.on_sample(SAMPLES[0])
    progress.close()
    seconds = SAMPLES[0].outcome.seconds * 1000
    assert "1:15 left" in stream.getvalue()
    assert "round 3" in stream.getvalue()
    assert f"recompute 8,192 tokens: {seconds:.0f} ms" in stream.getvalue()


def test_over_budget_no_time_is_left_and_never_less() -> None:
    stream = io.StringIO()
    clock = FakeClock()
    progress = SweepProgress(Console(file=stream, force_terminal=True, width=120), 10.0, now_s=clock)
    clock.time_s += 11
    progress.on_phase("analysing")
    progress.close()
    assert "0:00 left" in stream.getvalue() and "-" not in stream.getvalue().split("left")[-2][-6:]


def test_closing_twice_is_safe() -> None:
    progress = SweepProgress(Console(file=io.StringIO(), force_terminal=True), 1.0, now_s=FakeClock())
    progress.close()
    progress.close()
