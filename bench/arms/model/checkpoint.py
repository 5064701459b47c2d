"""A model with the weights that somebody saved, each rank reading its own shard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.utils.import_utils import is_accelerate_available

from bench.arms import ranks as group


class WeightsError(Exception):
    """Real weights that cannot be used as they are."""


def load_weights(
    folder: str,
    config: PretrainedConfig,
    *,
    dtype: torch.dtype,
    attention: str,
    device_type: str,
    plan_changes: Mapping[str, str],
) -> PreTrainedModel:
    """The model with the safetensors in `folder`; of several ranks, this one's shard of it.

    Args:
        plan_changes: rules of the library's tensor-parallel plan that are to be others.

    Raises:
        WeightsError: no safetensors, some missing, a group without accelerate, or on another device than the
            library would use.
    """
    path = Path(folder)
    if not any(path.glob("*.safetensors")):
        raise WeightsError(f"{folder}: no *.safetensors here; download the model's folder first and name it")
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        str(path),
        config=config,
        dtype=dtype,
        attn_implementation=attention,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
        **_shared_among_ranks(folder, device_type, plan_changes),
    )
    model: PreTrainedModel = loaded[0]
    report: dict[str, Any] = loaded[1]
    lacking = sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])
    if lacking:
        raise WeightsError(
            f"{folder}: {len(lacking)} tensors missing or of another shape, first {lacking[0]}"
        )
    return model


def _shared_among_ranks(folder: str, device_type: str, plan_changes: Mapping[str, str]) -> dict[str, Any]:
    if group.size() == 1:
        return {}
    if not is_accelerate_available():
        raise WeightsError(
            f"{folder}: with --tp, transformers reads weights by accelerate, which is not installed: "
            "pip install 'kvcross[tp-weights]'"
        )
    accelerator = torch.accelerator.current_accelerator()
    found = "cpu" if accelerator is None else accelerator.type
    if found != device_type:  # the library takes no other device for its ranks than the machine's best
        raise WeightsError(
            f"{folder}: with --tp, transformers loads weights to {found} only, not to {device_type}; try --device {found}"
        )
    changes = dict(plan_changes) or None
    return {"distributed_config": DistributedConfig(tp_size=group.size(), tp_plan=changes)}
