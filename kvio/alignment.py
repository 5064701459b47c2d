"""The alignment that reads past the page cache need."""

DIRECT_ALIGN_BYTES = (
    4096  # largest logical block of drives on sale; offset, length and address must be multiples
)


def round_up(num_bytes: int, unit_bytes: int) -> int:
    """The smallest multiple of `unit_bytes` that is not below `num_bytes`."""
    return -(-num_bytes // unit_bytes) * unit_bytes
