"""Which attention kernel ran?  Seen in the operators of a forward, never taken from a setting."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

KERNELS = {
    "aten._scaled_dot_product_flash_attention_for_cpu": "sdpa-flash-cpu",
    "aten._scaled_dot_product_flash_attention": "sdpa-flash",
    "aten._scaled_dot_product_efficient_attention": "sdpa-efficient",
    "aten._scaled_dot_product_cudnn_attention": "sdpa-cudnn",
    "aten._scaled_dot_product_fused_attention_overrideable": "sdpa-fused",
    "flash_attn._flash_attn_forward": "flash_attention_2",
    "flash_attn._flash_attn_varlen_forward": "flash_attention_2",
    "flash_attn_3.fwd": "flash_attention_3",
}
SOFTMAXES = {"aten._softmax", "aten._safe_softmax"}


class _Observer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the operators that run; unlike torch.profiler it starts no tracing library."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401  (torch's own signature)
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        self.names.add(str(func.name()).replace("::", ".").split(".default")[0])
        return func(*args, **(kwargs or {}))


def observe_attention(forward: Callable[[], object], *, implementation: str) -> str:
    """Name of the kernel that `forward` attends with; several are joined by `+`, none is `none`.

    `forward` must not enter inference mode, under which composite operators stay whole and hide what they
    dispatch to.
    """
    with torch.no_grad(), _Observer() as observer:
        forward()
    found = {KERNELS[name] for name in observer.names if name in KERNELS}
    if found:
        return "+".join(sorted(found))
    if observer.names & SOFTMAXES:
        return "eager" if implementation == "eager" else f"{implementation}-math"
    return "none"
