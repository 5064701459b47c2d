"""Which path a kvikio read took: the decision table, row by row."""

import pytest

from kvio.evidence.gds_path import PATH_NOTICES, CuFileReads, KvikioReads, PathEvidence, decide_path

MIB = 2**20
PAYLOAD = 64 * MIB
POSIX = KvikioReads(posix_bytes=PAYLOAD, gds_bytes=0)
GDS = KvikioReads(posix_bytes=0, gds_bytes=PAYLOAD)


def _cufile(**counts: int) -> CuFileReads:
    return CuFileReads(**{"num_bytes": PAYLOAD, "gpu_bytes": PAYLOAD, **counts})


P2P, NVFS, INSIDE = _cufile(num_p2p=16), _cufile(num_nvfs=16), _cufile(num_posix=16)


@pytest.mark.parametrize(
    ("kvikio", "cufile", "nvfs_bytes", "compat", "path", "codes"),
    [
        # kvikio's own compatibility mode, asked for or not
        (POSIX, None, None, True, "kvikio-compat", ()),
        (POSIX, None, None, False, "kvikio-compat", ("gds_fell_back",)),
        (POSIX, P2P, PAYLOAD, False, "kvikio-compat", ("gds_fell_back",)),
        # kvikio says GDS: only the counters below it tell what that was
        (GDS, P2P, None, False, "gds-p2pdma", ()),
        (GDS, P2P, 0, False, "gds-p2pdma", ()),
        (GDS, NVFS, None, False, "gds-nvfs", ()),
        (GDS, NVFS, PAYLOAD, False, "gds-nvfs", ()),
        (GDS, INSIDE, None, False, "cufile-compat", ("gds_fell_back",)),
        (GDS, INSIDE, 0, False, "cufile-compat", ("gds_fell_back",)),
        (GDS, INSIDE, PAYLOAD, False, "cufile-compat", ("gds_fell_back",)),
        # a libcufile without statistics: nvidia-fs's counter alone
        (GDS, None, PAYLOAD, False, "gds-nvfs", ()),
        (GDS, None, PAYLOAD - MIB, False, "gds-nvfs", ()),
        (GDS, None, PAYLOAD // 2, False, "gds-unverified", ("gds_unproven",)),
        (GDS, None, 0, False, "gds-unverified", ("gds_unproven",)),
        (GDS, None, None, False, "gds-unverified", ("gds_unproven",)),
        # the mode that was asked for never decides
        (GDS, P2P, None, True, "gds-p2pdma", ()),
        # contradictions
        (GDS, NVFS, 0, False, "gds-unverified", ("gds_unproven",)),
        (GDS, _cufile(num_p2p=16, gpu_bytes=0), None, False, "gds-unverified", ("gds_unproven",)),
        (GDS, _cufile(), None, False, "gds-unverified", ("gds_unproven",)),
        (GDS, _cufile(num_bytes=0, num_p2p=16), None, False, "gds-unverified", ("gds_unproven",)),
        # a part went another way
        (GDS, _cufile(num_p2p=15, num_posix=1), None, False, "gds-unverified", ("gds_mixed_paths",)),
        (GDS, _cufile(num_nvfs=1, num_posix=15), None, False, "gds-unverified", ("gds_mixed_paths",)),
        (GDS, _cufile(num_p2p=8, num_nvfs=8), None, False, "gds-unverified", ("gds_mixed_paths",)),
        (GDS, _cufile(num_p2p=16, num_unaligned=1), None, False, "gds-unverified", ("gds_mixed_paths",)),
        (GDS, _cufile(num_nvfs=16, num_rerouted=2), None, False, "gds-unverified", ("gds_mixed_paths",)),
        (GDS, _cufile(num_p2p=16, num_errors=1), None, False, "gds-unverified", ("gds_errors",)),
        (GDS, _cufile(num_posix=16, num_unaligned=16), None, False, "cufile-compat", ("gds_fell_back",)),
        (KvikioReads(MIB, PAYLOAD - MIB), P2P, None, False, "gds-unverified", ("gds_mixed_paths",)),
        (KvikioReads(1, PAYLOAD), P2P, None, False, "gds-unverified", ("gds_mixed_paths",)),
        # nobody saw it
        (None, P2P, PAYLOAD, False, "gds-unverified", ("gds_unproven",)),
        (None, None, None, True, "kvikio-compat-unverified", ("gds_unproven",)),
        (KvikioReads(PAYLOAD // 2, 0), None, None, True, "kvikio-compat-unverified", ("gds_unproven",)),
        (KvikioReads(PAYLOAD, 0, 1), None, None, True, "kvikio-compat-unverified", ("gds_errors",)),
    ],
)
def test_the_counters_decide(
    kvikio: KvikioReads | None,
    cufile: CuFileReads | None,
    nvfs_bytes: int | None,
    compat: bool,
    path: str,
    codes: tuple[str, ...],
) -> None:
    evidence = PathEvidence(PAYLOAD, kvikio, cufile, nvfs_bytes)
    assert decide_path(evidence, compat=compat) == (path, codes)


@pytest.mark.parametrize(
    ("cufile", "nvfs_bytes", "path"),
    [(P2P, None, "gds-p2pdma"), (NVFS, None, "gds-nvfs"), (None, PAYLOAD, "gds-nvfs")],
)
def test_dma_that_the_drive_knows_nothing_of_is_not_dma(
    cufile: CuFileReads | None, nvfs_bytes: int | None, path: str
) -> None:
    busy = PathEvidence(PAYLOAD, GDS, cufile, nvfs_bytes, device_bytes=PAYLOAD)
    idle = PathEvidence(PAYLOAD, GDS, cufile, nvfs_bytes, device_bytes=PAYLOAD // 2)
    assert decide_path(busy, compat=False) == (path, ())
    assert decide_path(idle, compat=False) == ("gds-unverified", ("gds_unproven",))


def test_a_cache_may_answer_a_read_through_host_memory() -> None:
    evidence = PathEvidence(PAYLOAD, GDS, INSIDE, device_bytes=0)
    assert decide_path(evidence, compat=False) == ("cufile-compat", ("gds_fell_back",))


def test_a_load_without_payload_proves_nothing() -> None:
    evidence = PathEvidence(0, KvikioReads(0, 0), _cufile(num_bytes=0, gpu_bytes=0))
    assert decide_path(evidence, compat=False) == ("gds-unverified", ("gds_unproven",))


def test_several_faults_are_each_given_once() -> None:
    faulty = _cufile(
        num_p2p=8, num_nvfs=4, num_posix=4, num_unaligned=1, num_rerouted=1, num_errors=1, gpu_bytes=0
    )
    path, codes = decide_path(PathEvidence(PAYLOAD, GDS, faulty, device_bytes=0), compat=False)
    assert path == "gds-unverified"
    assert set(codes) == {"gds_unproven", "gds_mixed_paths", "gds_errors"}
    assert len(set(codes)) == len(codes)
    assert set(codes) <= PATH_NOTICES
