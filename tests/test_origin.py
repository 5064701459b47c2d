"""What a report says of where its figures come from."""

from bench.report.provenance import check_rows
from tests.sweeps import make_run


def test_what_the_device_multiplies_is_said_with_what_that_means_for_the_dtype() -> None:
    rates = {"bfloat16": 2.08e10, "float32": 1.37e11}
    run = make_run(checks={"dtype": {"flops_per_s": rates, "ratio": 0.1518}})
    assert check_rows(run) == (
        (
            "matrix multiplication alone",
            "bfloat16 0.0208 TFLOP/s, float32 0.137 TFLOP/s: the dtype asked for has 15.2 % of the other's rate",
            "",
        ),
    )
    alone = make_run(checks={"dtype": {"flops_per_s": {"float32": 1.25e11}, "ratio": 1.0}})
    assert check_rows(alone) == (("matrix multiplication alone", "float32 0.125 TFLOP/s", ""),)
    edited = make_run(checks={"dtype": {"flops_per_s": "fast", "ratio": "x"}})
    assert check_rows(edited) == (("matrix multiplication alone", "flops per s fast; ratio x", ""),)
