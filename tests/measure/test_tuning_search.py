"""The search for threads, depth and request size: when there is one, what it reads, and what the run records."""

import json
from pathlib import Path

import pytest

from bench.measure.clock import MonotonicClock, VirtualClock
from bench.measure.preflight import prepare_rounds, run_preflight
from bench.measure.processes.messages import SearchJob, SettingFound
from bench.measure.processes.source import SimulatedSource
from bench.measure.session import MeasurementSession
from bench.measure.setup import ResolvedPlan, resolve_plan
from bench.measure.stores import create_stores, plan_stores
from bench.measure.sweep import SweepHooks, resume_sweep, run_sweep
from bench.measure.tuning.tuning_rule import Choice, ReadPass, TuningGrid
from bench.measure.tuning.tuning_search import PlannedSearch, make_grid, note_searches, plan_search
from bench.measure.worker.tuning_reads import search_all
from bench.record.plan import LoadSpec, Plan, PlanError
from bench.record.progress import End
from bench.record.read_setting import ReadSetting, SettingSearch, SettingTrial, settle
from bench.record.run import read_run
from bench.record.sample import Sample
from bench.record.samples_csv import read_samples
from bench.report.provenance import check_rows, format_search
from tests.helpers.places import avoid_memory
from tests.helpers.scripted_rounds import SilentObserver
from tests.helpers.sweeps import make_run, make_samples

MIB = 2**20
WIDE = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}  # 32 KiB of float32 KV for each token: 512 tokens are 16.8 MB
CHOSEN = ReadSetting(num_threads=2, in_flight=1, request_bytes=MIB)


@pytest.fixture
def wide(tmp_path: Path) -> str:
    path = tmp_path / "wide.json"
    path.write_text(json.dumps(WIDE))
    return str(path)


def plan_of(model: str = "qwen3-8b", *, loads: tuple[LoadSpec, ...] = (LoadSpec(),), **more: object) -> Plan:
    return Plan.model_validate({"model": model, "dtype": "float32", "loads": loads, **more})


def planned(plan: Plan, samples: list[Sample] | None = None, **run: object) -> PlannedSearch:
    return plan_search(make_run(plan=plan, **run), resolve_plan(plan), samples or [])


def choose_the_other(space: TuningGrid, read_pass: ReadPass, *, seed: int) -> Choice:
    """Reads twice with CHOSEN and once with the default; chooses CHOSEN."""
    result = read_pass((CHOSEN, space.default))
    assert set(result.bytes_per_s) == {CHOSEN, space.default}
    assert 0 < result.left_share < 1
    read_pass((CHOSEN,))
    return Choice(CHOSEN, f"asked to, with seed {seed}")


def test_a_search_takes_8_percent_of_the_budget_and_15_seconds_at_most() -> None:
    assert planned(plan_of(budget_s=100)) == PlannedSearch(("posix/best",), 8.0)
    assert planned(plan_of(budget_s=3600)).limit_s == 15.0
    two = (LoadSpec(), LoadSpec(backend="uring"))
    assert planned(plan_of(budget_s=100, loads=two)).series == ("posix/best", "uring/best")


def test_a_small_budget_keeps_the_layout_s_own_values_and_says_so() -> None:
    small = planned(plan_of(budget_s=30))
    assert (small.series, small.limit_s) == ((), 0.0)
    assert "at least 38 s" in small.known["posix/best"].reason
    assert small.known["posix/best"].chosen is None


@pytest.mark.parametrize(("number", "budget_s"), [(1, 38), (2, 75), (3, 113), (4, 150), (5, 188)])
def test_the_budget_that_is_said_to_be_enough_is(number: int, budget_s: int) -> None:
    loads = tuple(LoadSpec(backend=name) for name in ("posix", "uring", "hostmem", "nixl", "gds")[:number])
    small = planned(plan_of(budget_s=30, loads=loads))
    assert f"at least {budget_s} s" in small.known["posix/best"].reason
    assert len(planned(plan_of(budget_s=budget_s, loads=loads)).series) == number


def test_more_series_than_the_search_ever_has_time_for_are_told_so() -> None:
    names = ("posix", "uring", "hostmem", "nixl", "gds", "hostmem-pinned")
    search = planned(plan_of(budget_s=3600, loads=tuple(LoadSpec(backend=name) for name in names)))
    assert search.series == ()
    assert search.known["posix/best"].reason.startswith("6 series")


@pytest.mark.parametrize(
    ("loads", "more", "reason"),
    [
        ((LoadSpec(),), {"limit_bytes_per_s": 1e8}, "under a read limit"),
        ((LoadSpec(),), {"tensor_parallel": 2}, "several ranks read at once"),
        ((LoadSpec(backend="null"),), {}, "null reads nothing"),
        ((LoadSpec(num_threads=8, request_bytes=MIB),), {}, "every setting of posix was given"),
        ((LoadSpec(queue_depth=8, request_bytes=MIB),), {}, "every setting of posix was given"),
        ((LoadSpec(backend="hostmem", num_threads=8),), {}, "every setting of hostmem was given"),
    ],
)
def test_where_there_is_nothing_to_search_the_record_says_why(
    loads: tuple[LoadSpec, ...], more: dict[str, object], reason: str
) -> None:
    search = planned(plan_of(loads=loads, **more))
    assert search.series == ()
    assert reason in search.known[loads[0].series].reason


def test_a_simulated_drive_is_not_searched() -> None:
    plan = plan_of(loads=(LoadSpec(backend="simulated"),), simulation={})
    assert planned(plan).known["simulated/best"].reason == "simulated reads nothing"


def test_only_our_own_layout_is_searched_and_one_open_value_is_enough() -> None:
    assert planned(plan_of(loads=(LoadSpec(preset="lmcache"),))) == PlannedSearch()
    assert planned(plan_of(loads=(LoadSpec(num_threads=8),))).series == ("posix/best",)
    half = (LoadSpec(backend="uring", queue_depth=8, request_bytes=MIB),)
    assert planned(plan_of(loads=half)).series == ("uring/best",)
    assert planned(plan_of(loads=(LoadSpec(backend="hostmem"),))).series == ("hostmem/best",)


def test_a_resumed_run_is_not_searched_again() -> None:
    found = {"posix/best": SettingSearch(chosen=CHOSEN, reason="it was fast")}
    assert planned(plan_of(), searches=found) == PlannedSearch(known=found)
    samples = make_samples(num_rounds=1)
    assert planned(plan_of(), samples, searches=found) == PlannedSearch(known=found)
    # of a run that began with an older kvcross, all rounds use the layout's own values
    assert planned(plan_of(), samples) == PlannedSearch()


def test_a_plan_is_carried_out_with_what_was_found() -> None:
    plan = plan_of(loads=(LoadSpec(), LoadSpec(backend="uring"), LoadSpec(preset="lmcache")))
    searches = {
        "posix/best": SettingSearch(chosen=CHOSEN, reason=""),
        "uring/best": SettingSearch(
            chosen=ReadSetting(num_threads=2, in_flight=8, request_bytes=2 * MIB), reason=""
        ),
    }
    before, after = resolve_plan(plan).loads, resolve_plan(settle(plan, searches)).loads
    read = [
        (load.geometry.preset.num_threads, load.in_flight, load.geometry.preset.request_bytes)
        for load in after
    ]
    assert read[:2] == [(2, 1, MIB), (2, 8, 2 * MIB)]
    assert after[2] == before[2]
    assert settle(plan, {"posix/best": SettingSearch(reason="none")}) == plan


def test_series_say_what_was_chosen_and_keep_why_they_are_skipped() -> None:
    plan = plan_of(hybrid=True)
    series = dict(resolve_plan(plan).series)
    hybrid = series["hybrid/posix/best"]
    series["hybrid/posix/best"] = hybrid.model_copy(
        update={"settings": {**hybrid.settings, "skipped": "why"}}
    )
    searches = {"posix/best": SettingSearch(chosen=CHOSEN, reason="fast")}
    run = note_searches(make_run(plan=plan, series=series, searches=searches))
    load, hybrid = run.series["posix/best"], run.series["hybrid/posix/best"]
    assert load.label == hybrid.label == "posix, best layout (2 × 1, 1 MiB)"
    assert {name: load.settings[name] for name in ("num_threads", "queue_depth", "request_bytes")} == {
        "num_threads": 2,
        "queue_depth": 2,
        "request_bytes": MIB,
    }
    assert (hybrid.settings["num_threads"], hybrid.skipped) == (2, "why")
    assert run.series["recompute"] == series["recompute"]
    assert note_searches(run) == run


def test_a_search_is_said_in_one_line() -> None:
    own = ReadSetting(num_threads=4, in_flight=4, request_bytes=MIB)
    trials = (
        SettingTrial(setting=CHOSEN, bytes_per_s=(1.2e9, 1.1e9, 1.3e9)),
        SettingTrial(setting=own, bytes_per_s=(1e9,)),
    )
    search = SettingSearch(
        chosen=CHOSEN, default=own, reason="fast", trials=trials, prefix_tokens=512, seconds=6.04
    )
    assert format_search(search) == (
        "2 threads, 2 in flight, 1 MiB requests: 1.20 GB/s (searched 2 settings in 6.04 s; "
        "the layout's own 4 threads, 16 in flight, 1 MiB requests: 1.00 GB/s)"
    )
    assert format_search(search.model_copy(update={"chosen": own})) == (
        "4 threads, 16 in flight, 1 MiB requests: 1.00 GB/s (searched 2 settings in 6.04 s; "
        "none proved faster than these, the layout's own)"
    )
    assert format_search(SettingSearch(reason="no time")) == (
        "the layout's own threads, depth and request size, not searched: no time"
    )
    said = str(ReadSetting(num_threads=1, in_flight=16, request_bytes=192 * 1024))
    assert said == "1 thread, 16 in flight, 192 KiB requests"


def search_on_disk(setup: ResolvedPlan, scratch: Path, job_seconds: float = 60) -> dict[str, SettingSearch]:
    clock = MonotonicClock()
    stores = create_stores(setup, plan_stores(setup, scratch, longest=1024))
    job = SearchJob(setup.plan, stores, 1024, clock.now_s() + job_seconds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.measure.worker.tuning_reads.search_settings", choose_the_other)
        return {
            found.series: found.search for found in search_all(job, clock) if isinstance(found, SettingFound)
        }


def test_trials_read_the_runs_files_cold_under_the_settings_asked_for(wide: str, tmp_path: Path) -> None:
    plan = plan_of(wide, working_set_bytes=128 * MIB, num_rounds=1, seed=7)
    found = search_on_disk(resolve_plan(plan), tmp_path)
    search = found["posix/best"]
    assert (search.chosen, search.reason) == (CHOSEN, "asked to, with seed 7")
    default = ReadSetting(num_threads=4, in_flight=1, request_bytes=4 * MIB)
    assert [(trial.setting, len(trial.bytes_per_s)) for trial in search.trials] == [(CHOSEN, 2), (default, 1)]
    assert all(trial.failed is None for trial in search.trials)
    assert search.prefix_tokens is not None and 512 <= search.prefix_tokens <= 1024
    assert search.default == default and (search.bytes_per_s(CHOSEN) or 0) > 0
    assert search.seconds is not None and 0 < search.seconds < 60


def test_a_search_without_time_for_two_dozen_reads_is_none(wide: str, tmp_path: Path) -> None:
    plan = plan_of(wide, working_set_bytes=128 * MIB, num_rounds=1)
    search = search_on_disk(resolve_plan(plan), tmp_path, job_seconds=1e-3)["posix/best"]
    assert search.chosen is None
    assert "too long for a search within 0 s" in search.reason


class Interrupting(SilentObserver):
    """An observer that is interrupted after so many samples."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self._left = samples

    def on_sample(self, sample: Sample) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt


def all_lengths(progress: object) -> tuple[int, ...] | End:
    done: int = progress.rounds_done  # type: ignore[attr-defined]
    return (512,) if done < 2 else End("enough")


@pytest.mark.slow
def test_every_round_of_a_sweep_reads_as_the_search_chose_and_a_resumed_one_too(
    wide: str, tmp_path: Path
) -> None:
    avoid_memory(tmp_path)
    plan = plan_of(wide, tokens=(512,), num_samples=1, budget_s=300, working_set_bytes=64 * MIB, layers="all")
    hooks = SweepHooks(policy=all_lengths, observer=Interrupting(3))
    folder = run_sweep(plan, root=tmp_path / "results", data_dir=tmp_path, hooks=hooks)
    stopped = read_run(folder)
    chosen = stopped.searches["posix/best"].chosen
    assert stopped.state == "interrupted" and chosen is not None
    assert stopped.plan == plan
    hooks = SweepHooks(policy=all_lengths, observer=SilentObserver())
    resume_sweep(folder, data_dir=tmp_path, hooks=hooks)
    run, (samples, _) = read_run(folder), read_samples(folder)
    assert (run.state, run.searches) == ("complete", stopped.searches)
    loads = [sample.outcome for sample in samples if sample.case.series == "posix/best"]
    assert len(loads) >= 2
    assert {(one.queue_depth, one.request_bytes, one.verified) for one in loads} == {
        (chosen.queue_depth, min(chosen.request_bytes, 2 * MIB), True)  # a chunk of 64 tokens is 2 MiB
    }
    assert run.series["posix/best"].label.endswith(f"({chosen.brief})")
    assert not list(tmp_path.glob("*/store-*"))


def test_closing_text_and_report_list_what_was_searched_beside_the_checks() -> None:
    run = make_run(searches={"posix/best": SettingSearch(reason="no time")})
    name, said, state = check_rows(run)[-1]
    assert (name, state) == ("posix/best", "")
    assert said.endswith("not searched: no time")


def test_the_time_of_the_search_is_left_out_of_what_the_rounds_are_planned_with() -> None:
    plan = plan_of(loads=(LoadSpec(backend="simulated"),), simulation={}, budget_s=100)
    setup, clock = resolve_plan(plan), VirtualClock()
    assert plan.simulation is not None
    session = MeasurementSession(
        clock,
        SimulatedSource(plan.simulation, clock=clock, num_bytes=lambda n, suffix: 8 * (suffix or n)),
        None,
        0.0,
    )

    def longest(search_s: float) -> int:
        findings = run_preflight(
            setup, session, start_s=clock.now_s(), checked=frozenset(), observer=SilentObserver()
        )
        rounds = prepare_rounds(
            setup, session, make_run(plan=plan, series=setup.series), findings=findings, start_s=clock.now_s(),
            samples=[], search_s=search_s, observer=SilentObserver(),
        )  # fmt: skip
        return rounds.allowed[-1]

    assert longest(50.0) < longest(0.0)
    with pytest.raises(PlanError, match="a budget of 100 s is too small"):
        longest(99.99)


GIB = 2**30


def space_of(*, memory_bytes: int = 64 * GIB, **asked: object) -> TuningGrid:
    (load,) = resolve_plan(Plan(model="qwen3-8b", loads=(LoadSpec.model_validate(asked),))).loads
    return make_grid(load, available_bytes=memory_bytes)


def values(space: TuningGrid, name: str) -> list[int]:
    return sorted({getattr(setting, name) for setting in space.allowed})


def test_of_posix_the_threads_are_the_depth() -> None:
    space = space_of(backend="posix")
    assert space.default == ReadSetting(num_threads=4, in_flight=1, request_bytes=4 * MIB)
    assert space.axes == (("num_threads",), ("request_bytes",))
    assert values(space, "in_flight") == [1]
    assert values(space, "num_threads") == [1, 2, 4, 8, 16, 32, 64]
    # a chunk of 64 tokens is 9.4 MB: one request of 16 MiB reads it whole
    assert values(space, "request_bytes") == [2**power for power in range(18, 25)]


def test_of_uring_threads_and_what_each_keeps_in_flight_vary() -> None:
    space = space_of(backend="uring")
    assert space.default == ReadSetting(num_threads=4, in_flight=4, request_bytes=4 * MIB)
    assert space.axes == (("num_threads",), ("in_flight",), ("request_bytes",))
    assert values(space, "in_flight") == [1, 2, 4, 8, 16, 32]
    assert max(setting.queue_depth for setting in space.allowed) == 256


def test_what_was_asked_for_is_not_tried_otherwise() -> None:
    assert space_of(backend="posix", num_threads=8).axes == (("request_bytes",),)
    assert values(space_of(backend="posix", queue_depth=8), "num_threads") == [8]
    assert values(space_of(backend="posix", request_bytes=MIB), "request_bytes") == [MIB]
    assert space_of(backend="uring", num_threads=8).axes == (("in_flight",), ("request_bytes",))
    fixed = space_of(backend="uring", num_threads=8, queue_depth=16, request_bytes=MIB)
    assert fixed.axes == ()
    assert fixed.allowed == {ReadSetting(num_threads=8, in_flight=2, request_bytes=MIB)}


def test_a_depth_that_was_asked_for_is_kept_while_threads_vary() -> None:
    space = space_of(backend="uring", queue_depth=32)
    assert space.axes == (("num_threads", "in_flight"), ("request_bytes",))
    assert {setting.queue_depth for setting in space.allowed} == {32}
    assert values(space, "num_threads") == [1, 2, 4, 8, 16, 32]


def test_copies_from_memory_have_threads_alone() -> None:
    space = space_of(backend="hostmem")
    assert space.axes == (("num_threads",),)
    assert values(space, "request_bytes") == [4 * MIB]


def test_request_sizes_that_read_a_chunk_alike_are_one() -> None:
    # 16 tokens of Qwen3-0.6B in bfloat16 are 1.8 MB: from 2 MiB on a chunk is one read
    plan = Plan(model="qwen3-0.6b", loads=(LoadSpec(chunk_tokens=16),))
    (load,) = resolve_plan(plan).loads
    space = make_grid(load, available_bytes=64 * GIB)
    assert values(space, "request_bytes") == [256 * 1024, 512 * 1024, MIB, 4 * MIB]


@pytest.mark.parametrize("backend", ["posix", "uring"])
def test_buffers_take_a_fiftieth_of_the_memory_at_most(backend: str) -> None:
    space = space_of(backend=backend, memory_bytes=4 * GIB)
    room = 4 * GIB // 50
    chunk_bytes = 64 * 147_456  # no buffer is larger
    taken = [
        one.num_threads * (one.in_flight + 1) * min(one.request_bytes, chunk_bytes) for one in space.allowed
    ]
    assert room / 2 < max(taken) <= room
    assert space.default in space.allowed
