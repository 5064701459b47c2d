"""What all of kvio raises when reading or writing KV bytes goes wrong."""


class KVIOError(Exception):
    """Reading or writing KV bytes failed, or would have given a wrong number."""
