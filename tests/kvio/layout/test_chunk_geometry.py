"""Presets and chunk geometry: bytes, counts and offsets of real stacks' files."""

import dataclasses

import pytest

from kvio.layout.chunk_geometry import ByteRange, ChunkGeometry
from kvio.layout.planes import KVLayout, Plane, uniform_layout
from kvio.layout.presets import PRESETS, adapt_preset, find_preset
from kvio.protocol import KVIOError
from tests.helpers.commands import ROOT

LLAMA_8B = uniform_layout(32, 8 * 128 * 2)  # Llama-3.1-8B bf16: 32 layers, 8 KV heads of 128
DEEPSEEK_V3 = uniform_layout(61, (512 + 64) * 2, roles=("latent",))  # MLA bf16: latent 512 and rope 64


def _geometry(layout: KVLayout, name: str, **overrides: int | bool | None) -> ChunkGeometry:
    return ChunkGeometry(layout, adapt_preset(find_preset(name), **overrides))  # type: ignore[arg-type]


def _windowed_layout() -> KVLayout:
    """Four layers of 2 x 4096 bytes per token, every second one with a window of 8 tokens."""
    return KVLayout(
        tuple(Plane(layer, role, 4096, 8 if layer % 2 else None) for layer in range(4) for role in ("k", "v"))
    )


def test_llama_8b_keeps_131072_bytes_per_token_and_deepseek_v3_70272() -> None:
    assert LLAMA_8B.bytes_per_token == 131_072
    assert DEEPSEEK_V3.bytes_per_token == 70_272


# of each preset, on Llama-3.1-8B in bfloat16 (131,072 bytes per token): tokens of a chunk, objects of a chunk,
# bytes that an object takes, offset of its payload, bytes of its reads, O_DIRECT, threads, depth, open per read
KIB, MIB = 1 << 10, 1 << 20
ROWS = {
    "best": (64, 1, 8 * MIB, 0, (4 * MIB, 4 * MIB), True, 4, 1, False),
    "lmcache": (256, 1, 32 * MIB, 0, (32 * MIB,), False, 4, 1, True),
    "lmcache-gds": (256, 1, 32 * MIB + 4096, 4096, (32 * MIB,), True, 4, 1, True),
    "lmcache-layerwise": (256, 32, 1 * MIB, 0, (1 * MIB,), False, 4, 1, True),
    "lmcache-raw": (256, 1, 32 * MIB + 4096, 4096, (4096, 32 * MIB), True, 4, 1, False),
    "vllm-fs": (16, 1, 2 * MIB, 0, (2 * MIB,), True, 16, 1, True),
    "vllm-offload": (16, 1, 2 * MIB, 0, (2 * MIB,), True, 1, 1, False),
    "sglang-page": (64, 1, 8 * MIB, 0, (8 * MIB,), False, 1, 1, True),
    "sglang-page1": (1, 1, 128 * KIB, 0, (128 * KIB,), False, 1, 1, True),
    "sglang-zero-copy": (64, 2, 4 * MIB, 0, (4 * MIB,), True, 1, 128, True),
    "sglang-layer-first": (64, 1, 8 * MIB, 0, (128 * KIB,) * 64, False, 1, 1, True),
    "kvbm": (16, 1, 2 * MIB, 0, (2 * MIB,), True, 4, 1, False),
    "mooncake": (512, 1, 64 * MIB, 0, (64 * MIB,), True, 1, 32, False),
    "mlperf-npy": (8192, 1, (1 << 30) + 128, 128, (128, 1 << 30), False, 1, 1, True),
}


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_chunk_of_llama_8b_lies_and_is_read_as_the_stack_does_it(name: str) -> None:
    geometry = _geometry(LLAMA_8B, name)
    preset, first = geometry.preset, geometry.objects[0]
    assert {part.padded_bytes for part in geometry.objects} == {first.padded_bytes}
    reads = [read for read in geometry.reads_for(0, preset.chunk_tokens) if read.object_number == 0]
    assert ROWS[name] == (
        geometry.chunk_tokens,
        len(geometry.objects),
        first.padded_bytes,
        first.header_bytes,
        tuple(read.num_bytes for read in reads),
        geometry.direct,
        preset.num_threads,
        preset.queue_depth,
        preset.open_per_read,
    )
    assert geometry.notices == {}


def test_the_page_on_layouts_lists_every_preset_as_it_is() -> None:
    lines = (ROOT / "docs" / "layouts.md").read_text().splitlines()
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in lines
        if line.startswith("| `") and "--" not in line
    ]
    assert {
        row[0].strip("`"): (row[1], int(row[2]), row[4], int(row[5]), row[7], row[8]) for row in cells
    } == {
        name: (
            f"{preset.stack} {preset.version}",
            preset.chunk_tokens,
            preset.order,
            preset.header_bytes,
            "direct" if preset.direct else "buffered",
            f"{preset.num_threads} × {preset.queue_depth}",
        )
        for name, preset in PRESETS.items()
    }


def test_reads_begin_behind_the_header_or_with_it() -> None:
    gds, raw = _geometry(LLAMA_8B, "lmcache-gds"), _geometry(LLAMA_8B, "lmcache-raw")
    assert gds.reads_for(0, 256) == (ByteRange(4096, 32 * MIB),)
    assert raw.reads_for(0, 256) == (ByteRange(0, 4096), ByteRange(4096, 32 * MIB))
    assert raw.slot_bytes == 4096 + 32 * MIB


def test_k_and_v_of_a_zero_copy_page_are_two_objects_token_by_token() -> None:
    segments = _geometry(LLAMA_8B, "sglang-zero-copy").segments
    assert [(part.object_number, part.planes, part.num_bytes, part.interleaved) for part in segments] == [
        (0, range(0, 64, 2), 4 * MIB, True),
        (1, range(1, 65, 2), 4 * MIB, True),
    ]


def test_a_layerwise_chunk_is_one_object_for_each_layer_with_k_beside_v() -> None:
    geometry = _geometry(LLAMA_8B, "lmcache-layerwise")
    assert [part.planes for part in geometry.segments[:2]] == [range(2), range(2, 4)]
    assert all(part.interleaved for part in geometry.segments)
    assert geometry.objects[31].payload_offset == 31 * MIB


def test_an_interleaved_object_is_read_by_one_thread_whatever_the_request_size() -> None:
    geometry = _geometry(LLAMA_8B, "sglang-zero-copy", request_bytes=1 << 20)
    assert geometry.units_for(0, 64) == (ByteRange(0, 4 * MIB, 0), ByteRange(0, 4 * MIB, 1))
    assert [read.num_bytes for read in geometry.reads_for(0, 64)] == [MIB] * 8


def test_objects_of_different_sizes_cannot_share_a_file_of_slots() -> None:
    preset = dataclasses.replace(find_preset("kvbm"), partition="role")
    mixed = KVLayout((Plane(0, "latent", 1024), Plane(0, "rope", 128)))
    with pytest.raises(KVIOError, match="objects of different sizes"):
        ChunkGeometry(mixed, preset)


def test_objects_in_one_file_are_a_stride_apart_and_others_have_none() -> None:
    assert _geometry(LLAMA_8B, "mooncake").packed_bytes == 64 * MIB
    assert _geometry(LLAMA_8B, "lmcache").packed_bytes is None


def test_every_preset_names_its_stack_version_and_source() -> None:
    for name, preset in PRESETS.items():
        assert preset.name == name
        assert all((preset.stack, preset.version, preset.source))


def test_role_major_is_all_k_planes_then_all_v_planes() -> None:
    segments = _geometry(LLAMA_8B, "lmcache").segments
    assert [(part.planes, part.payload_offset, part.num_bytes) for part in segments] == [
        (range(0, 64, 2), 0, 16_777_216),
        (range(1, 65, 2), 16_777_216, 16_777_216),
    ]


def test_layer_major_is_one_segment_in_the_order_of_the_groups() -> None:
    segments = _geometry(LLAMA_8B, "vllm-fs").segments
    assert [(part.planes, part.payload_offset, part.num_bytes) for part in segments] == [
        (range(64), 0, 2_097_152)
    ]


def test_an_mla_chunk_of_16_tokens_is_padded_and_says_by_how_much() -> None:
    geometry = _geometry(DEEPSEEK_V3, "best", chunk_tokens=16)
    assert (geometry.objects[0].file_bytes, geometry.padded_bytes) == (1_124_352, 1_126_400)
    assert geometry.direct
    assert "2048 bytes of padding" in geometry.notices["padded_chunk"]


@pytest.mark.parametrize("tokens", [32, 256])
def test_an_mla_chunk_of_32_or_256_tokens_needs_no_padding(tokens: int) -> None:
    assert _geometry(DEEPSEEK_V3, "best", chunk_tokens=tokens).notices == {}


def test_a_stack_loses_o_direct_on_the_same_chunk_and_that_is_said() -> None:
    geometry = _geometry(DEEPSEEK_V3, "vllm-fs")
    assert geometry.padded_bytes == 1_124_352
    assert not geometry.direct
    assert "vLLM loses O_DIRECT" in geometry.notices["direct_lost"]


def test_reads_of_the_padded_chunk_are_all_aligned() -> None:
    geometry = _geometry(DEEPSEEK_V3, "best", chunk_tokens=16, request_bytes=65_536)
    reads = geometry.reads_for(0, 16)
    assert sum(read.num_bytes for read in reads) == 1_126_400
    assert all(read.file_offset % 4096 == 0 and read.num_bytes % 4096 == 0 for read in reads)
    # two planes of 18432 bytes end on an aligned offset, one does not; the last three carry the padding
    assert {read.num_bytes for read in reads} == {36_864, 57_344}


def test_the_reads_of_a_chunk_cover_it_once_whatever_their_size() -> None:
    for request_bytes in (4096, 12_288, 1 << 20, 3 << 20, 1 << 30):
        geometry = _geometry(LLAMA_8B, "best", chunk_tokens=256, request_bytes=request_bytes)
        end = 0
        for read in geometry.reads_for(0, 256):
            assert read.file_offset == end
            assert read.num_bytes <= request_bytes
            end += read.num_bytes
        assert end == 33_554_432


def test_one_token_of_a_chunk_costs_reading_it_whole_but_needs_its_own_bytes_only() -> None:
    geometry = _geometry(LLAMA_8B, "lmcache")
    assert geometry.reads_for(0, 1) == (ByteRange(0, 33_554_432),)
    assert geometry.payload_bytes_between(0, 1) == 131_072


def test_an_old_chunk_outside_all_windows_needs_the_front_of_its_file_only() -> None:
    geometry = _geometry(_windowed_layout(), "best", chunk_tokens=4)
    # 8 planes x 4 tokens x 4096 bytes; the 4 unlimited planes lie in front
    assert geometry.padded_bytes == 131_072
    assert geometry.reads_for(0, 12) == (ByteRange(0, 65_536),)
    assert geometry.reads_for(0, 11) == (ByteRange(0, 131_072),)
    assert geometry.reads_for(1, 12) == (ByteRange(0, 131_072),)


def test_a_stack_reads_whole_files_even_beyond_its_windows() -> None:
    geometry = _geometry(_windowed_layout(), "lmcache", chunk_tokens=4)
    assert geometry.reads_for(0, 12) == (ByteRange(0, 131_072),)


def test_a_chunk_that_all_windows_left_behind_is_not_read() -> None:
    layout = KVLayout((Plane(0, "k", 4096, 8), Plane(0, "v", 4096, 8)))
    geometry = _geometry(layout, "best", chunk_tokens=4)
    assert geometry.reads_for(0, 12) == ()


@pytest.mark.parametrize("chunk_tokens", [4, 16], ids=["window of two chunks", "window of half a chunk"])
def test_needed_bytes_agree_with_the_layout_at_any_length(chunk_tokens: int) -> None:
    layout = _windowed_layout()
    geometry = _geometry(layout, "best", chunk_tokens=chunk_tokens)
    for tokens in (0, 1, 7, 8, 9, 15, 16, 17, 24, 25, 100):
        assert geometry.payload_bytes_between(0, tokens) == layout.bytes_at(tokens)


def test_the_marginal_question_counts_the_next_tokens_only() -> None:
    geometry = _geometry(_windowed_layout(), "best", chunk_tokens=4)
    # 2 more tokens after 100: 4 unlimited and 4 windowed planes of 4096 bytes
    assert geometry.payload_bytes_between(100, 102) == 2 * 8 * 4096
    # 20 more: the windowed planes keep 8 of them
    assert geometry.payload_bytes_between(100, 120) == (20 * 4 + 8 * 4) * 4096


def test_chunks_between_covers_the_tokens_and_nothing_else() -> None:
    geometry = _geometry(LLAMA_8B, "lmcache")
    assert geometry.chunks_between(0, 0) == range(0)
    assert geometry.chunks_between(0, 1) == range(0, 1)
    assert geometry.chunks_between(0, 256) == range(0, 1)
    assert geometry.chunks_between(0, 257) == range(0, 2)
    assert geometry.chunks_between(300, 600) == range(1, 3)


def test_a_chunk_beyond_the_prefix_is_refused() -> None:
    with pytest.raises(KVIOError, match="begins at token 256, beyond a prefix of 256"):
        _geometry(LLAMA_8B, "lmcache").reads_for(1, 256)


def test_a_header_is_skipped_and_costs_o_direct_unless_it_is_aligned() -> None:
    odd = dataclasses.replace(find_preset("vllm-fs"), header_bytes=128)
    even = dataclasses.replace(find_preset("vllm-fs"), header_bytes=4096)
    assert not ChunkGeometry(LLAMA_8B, odd).direct
    assert ChunkGeometry(LLAMA_8B, even).reads_for(0, 16) == (ByteRange(4096, 2_097_152),)


def test_an_unaligned_request_size_is_refused_under_o_direct_and_taken_without() -> None:
    with pytest.raises(KVIOError, match="request_bytes is 5000, not a multiple of 4096"):
        _geometry(LLAMA_8B, "best", request_bytes=5000)
    assert len(_geometry(LLAMA_8B, "best", request_bytes=5000, direct=False).reads_for(0, 64)) > 1600


def test_unknown_presets_and_impossible_values_are_named() -> None:
    with pytest.raises(KVIOError, match="unknown preset 'x'; there are: best, lmcache"):
        find_preset("x")
    with pytest.raises(KVIOError, match="num_threads is 0; it must be positive"):
        adapt_preset(find_preset("best"), num_threads=0)
    with pytest.raises(KVIOError, match="keeps nothing per token"):
        _geometry(KVLayout((), state_bytes=4096), "best")
