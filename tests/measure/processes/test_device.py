"""The device that a sweep names is the one that torch computes on, whatever else the machine has."""

from types import SimpleNamespace

import pytest
import torch

from bench.machine.facts import comparable, machine_slug
from bench.measure.clock import VirtualClock
from bench.measure.conditions import header
from bench.measure.conditions.header import describe_machine_of
from bench.measure.processes.device import ask_device, receive_device
from bench.measure.processes.messages import DeviceJob, DeviceSeen, JobDone, JobFailed
from bench.measure.rounds import MeasureError
from bench.measure.setup import resolve_plan
from bench.measure.worker.model_session import DeviceError, pick_device
from bench.measure.worker.worker_main import report_device as answer
from bench.record.plan import Plan, PlanError
from tests.helpers.scripted_rounds import SlowScriptedSource
from tests.machine.test_facts import CPU_ONLY, H200

ON_CPU = DeviceSeen(("cpu",), None, "2.13.0+cpu")
L40 = H200.model_copy(update={"name": "NVIDIA L40"})


def _describe(
    monkeypatch: pytest.MonkeyPatch, device: str, seen: DeviceSeen | None
) -> tuple[str, dict[str, object]]:
    """What is said of a machine on which the driver lists an H200 before an L40, and torch sees `seen`."""
    facts = CPU_ONLY.model_copy(update={"gpus": (H200, L40)})
    monkeypatch.setattr(header, "describe_machine", lambda: facts)

    def see(plan: Plan) -> DeviceSeen:
        assert seen is not None, "nobody need be asked"
        return seen

    monkeypatch.setattr(header, "ask_device", see)
    return describe_machine_of(resolve_plan(Plan(model="qwen3-0.6b", device=device)))


def test_the_gpu_that_torch_computes_on_gives_the_name_and_not_the_drivers_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slug, machine = _describe(monkeypatch, "cuda:1", DeviceSeen(("cuda:1",), "NVIDIA L40", "2.13.0"))
    assert slug == "nvidia-l40"
    assert (machine["device_name"], machine["devices"]) == ("NVIDIA L40", ["cuda:1"])
    assert [gpu["name"] for gpu in machine["gpus"]] == ["NVIDIA H200", "NVIDIA L40"]  # type: ignore[attr-defined]


def test_auto_does_not_measure_the_cpu_of_a_machine_with_a_gpu_that_torch_cannot_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(PlanError) as caught:
        _describe(monkeypatch, "auto", ON_CPU)
    assert str(caught.value) == (
        "device auto: NVIDIA H200 is here, but torch 2.13.0+cpu sees no GPU; try --device cpu to measure the CPU, "
        "or install a CUDA build of torch"
    )


def test_the_cpu_is_named_where_it_was_asked_for_and_torch_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slug, machine = _describe(monkeypatch, "cpu", None)
    assert (slug, machine["device_name"]) == (machine_slug(CPU_ONLY), "AMD EPYC (2 cores)")
    assert (machine["devices"], machine["gpus"]) == (["cpu"], [])


def test_auto_is_the_cpu_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header, "describe_machine", lambda: CPU_ONLY)
    monkeypatch.setattr(header, "ask_device", lambda plan: ON_CPU)
    _, machine = describe_machine_of(resolve_plan(Plan(model="qwen3-0.6b")))
    assert (machine["device_name"], machine["devices"]) == ("AMD EPYC (2 cores)", ["cpu"])


def test_a_gpu_that_the_driver_does_not_list_is_named_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header, "describe_machine", lambda: CPU_ONLY)
    monkeypatch.setattr(header, "ask_device", lambda plan: DeviceSeen(("cuda:0",), "AMD MI300X", "2.13"))
    slug, machine = describe_machine_of(resolve_plan(Plan(model="qwen3-0.6b")))
    assert (slug, machine["device_name"]) == ("amd-mi300x", "AMD MI300X")


def test_another_gpu_of_the_same_machine_is_another_device() -> None:
    facts = CPU_ONLY.model_copy(update={"gpus": (H200, L40)}).model_dump(mode="json")
    one, other = ({**facts, "device_name": gpu.name} for gpu in (H200, L40))
    assert comparable(one, other) == ["device_name: NVIDIA H200, NVIDIA L40"]


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that sees an L40 before an H200: another order than the driver's."""
    names = ("NVIDIA L40", "NVIDIA H200")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(
        "torch.cuda.get_device_properties", lambda device: SimpleNamespace(name=names[device.index or 0])
    )


def _answer(device: str, ranks: int = 1) -> DeviceSeen:
    return answer(DeviceJob(Plan(model="m", device=device, tensor_parallel=ranks), 0.0))


@pytest.mark.usefixtures("two_gpus")
def test_a_process_answers_with_the_device_that_it_would_measure_on() -> None:
    version = torch.__version__
    assert _answer("auto") == DeviceSeen(("cuda:0",), "NVIDIA L40", version)
    assert _answer("cuda:1") == DeviceSeen(("cuda:1",), "NVIDIA H200", version)
    assert _answer("auto", 2) == DeviceSeen(("cuda:0", "cuda:1"), "NVIDIA L40 + NVIDIA H200", version)
    assert _answer("cpu", 2) == DeviceSeen(("cpu", "cpu"), None, version)


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_is_not_there_is_refused_in_one_line() -> None:
    with pytest.raises(DeviceError, match="device cuda:2: the last GPU that torch sees is cuda:1"):
        pick_device("cuda:2")


def test_what_the_process_says_is_told_from_its_failure() -> None:
    job = DeviceJob(Plan(model="m", device="cuda"), 60.0)

    def hear(*messages: DeviceSeen | JobFailed) -> DeviceSeen:
        return receive_device(SlowScriptedSource(VirtualClock(), *messages, JobDone()), job)

    assert hear(ON_CPU) == ON_CPU
    with pytest.raises(PlanError, match="sees no GPU here"):
        hear(JobFailed("device cuda: torch sees no GPU here", refused=True))
    with pytest.raises(MeasureError, match="device cuda: killed"):
        hear(JobFailed("killed"))
    with pytest.raises(PlanError, match=r"within 60 s"):
        hear()


@pytest.mark.slow
def test_the_answer_comes_from_a_process_of_the_fork_server() -> None:
    assert ask_device(Plan(model="m", device="auto")).torch_version == torch.__version__
    assert torch.cuda.is_initialized() is False
