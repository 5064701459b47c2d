"""Every mutation of the table still applies, and its test catches it."""

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.__main__ import is_stale, try_mutation
from tests.mutants.table import MUTATIONS, Mutation


def test_every_mutation_applies_exactly_once_to_the_tree_as_it_is() -> None:
    assert [mutation.name for mutation in MUTATIONS if is_stale(mutation)] == []


def test_every_mutation_has_a_name_of_its_own() -> None:
    assert [
        name for name, count in Counter(mutation.name for mutation in MUTATIONS).items() if count > 1
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_a_wrong_number_is_noticed(mutation: Mutation, tmp_path: Path) -> None:
    assert try_mutation(mutation, tmp_path).said == "caught"
