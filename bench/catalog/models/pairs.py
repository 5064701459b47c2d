"""How many query-key pairs causal attention looks at: exact sums over positions."""


def full_pairs(num_tokens: int, past_tokens: int) -> int:
    """Pairs when each of `num_tokens` tokens attends to itself and to all before it."""
    return num_tokens * past_tokens + num_tokens * (num_tokens + 1) // 2


def window_pairs(num_tokens: int, past_tokens: int, window_tokens: int) -> int:
    """Pairs when each token attends to the last `window_tokens`, itself included."""
    growing = min(max(window_tokens - past_tokens, 0), num_tokens)
    return full_pairs(growing, past_tokens) + (num_tokens - growing) * window_tokens


def chunk_pairs(num_tokens: int, past_tokens: int, chunk_tokens: int) -> int:
    """Pairs when each token attends to those before it in its own chunk (Llama 4)."""

    def until(position: int) -> int:
        chunks, rest = divmod(position, chunk_tokens)
        return chunks * full_pairs(chunk_tokens, 0) + full_pairs(rest, 0)

    return until(past_tokens + num_tokens) - until(past_tokens)
