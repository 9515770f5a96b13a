"""Spaces made around a user's configurations."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelarc.genomes import (
    Allele,
    Boolean,
    Choice,
    InputError,
    IntegerRange,
    PowerOfTwo,
    Space,
    as_seen,
    widened,
)

SEEDS: list[Mapping[str, Allele]] = [
    {"BLOCK_M": 128, "GROUP_M": 8, "EVEN": True, "num_warps": 8, "num_stages": 3, "num_ctas": 1},
    {"BLOCK_M": 64, "GROUP_M": 8, "EVEN": True, "num_warps": 4, "num_stages": 4, "num_ctas": 1},
]


def domains(seeds: list[Mapping[str, Allele]]) -> dict[str, tuple[Allele, ...]]:
    return {gene.name: gene.values() for gene in widened(seeds)}


def test_each_kind_reaches_beyond_what_was_seen() -> None:
    found = domains(SEEDS)
    assert found["BLOCK_M"] == (32, 64, 128, 256)
    assert found["GROUP_M"] == (2, 4, 8, 16, 32)
    assert found["EVEN"] == (False, True)
    assert found["num_warps"] == (2, 4, 8, 16)
    assert found["num_stages"] == (2, 3, 4, 5, 6)
    assert "num_ctas" not in found


def test_clusters_and_words_stay_as_seen() -> None:
    found = domains([{"num_ctas": 1, "order": "mn"}, {"num_ctas": 2, "order": "nm"}])
    assert found == {"num_ctas": (1, 2), "order": ("mn", "nm")}
    assert domains([{"num_ctas": 2, "order": "mn"}])["num_ctas"] == (2,)


def test_tiles_do_not_fall_below_a_matrix_operand() -> None:
    assert domains([{"BLOCK_M": 16}, {"BLOCK_M": 32}])["BLOCK_M"] == (16, 32, 64)
    assert domains([{"BLOCK": 96}, {"BLOCK": 128}])["BLOCK"] == (96, 128)


def test_a_register_cap_is_a_gene_with_zero_for_none() -> None:
    values = domains([{"maxnreg": 0}])["maxnreg"]
    assert values[0] == 0
    assert 128 in values


def test_own_domains_win_and_may_add_genes() -> None:
    genes = widened(
        SEEDS, {"BLOCK_M": [64, 128], "GROUP_M": IntegerRange(name="GROUP_M", low=1, high=9),
                "FLATTEN": [False, True]}
    )  # fmt: skip
    found = {gene.name: gene for gene in genes}
    assert isinstance(found["BLOCK_M"], Choice)
    assert found["GROUP_M"].values() == tuple(range(1, 10))
    assert found["FLATTEN"].values() == (False, True)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"BLOCK_M": [32, 64]}, "gene 'BLOCK_M' has not the value 128 of a configuration"),
        ({"BLOCK_M": 64}, "needs a gene or a list of its values"),
        ({"BLOCK_M": Boolean(name="other")}, "calls itself 'other'"),
        ({"BLOCK_M": []}, "no alleles"),
    ],
)
def test_domains_that_do_not_fit_are_refused(own: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        widened(SEEDS, own)  # type: ignore[arg-type]


def test_configurations_with_different_genes_are_refused() -> None:
    with pytest.raises(InputError, match="configuration 2: 'B' is not in every"):
        widened([{"A": 1, "B": 2}, {"A": 1}])


def test_the_given_values_alone_make_a_space() -> None:
    found = {gene.name: gene.values() for gene in as_seen(SEEDS)}
    assert found["BLOCK_M"] == (128, 64)
    assert found["GROUP_M"] == (8,)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "tile": st.sampled_from([16, 32, 64, 128, 96]),
                "few": st.sampled_from([1, 2, 4, 3]),
                "num_warps": st.sampled_from([1, 2, 4, 8, 16, 32]),
                "num_stages": st.integers(0, 12),
                "flag": st.booleans(),
                "num_ctas": st.sampled_from([1, 2]),
            }
        ),
        min_size=1,
        max_size=6,
    )
)
def test_every_seed_is_a_genome_of_the_widened_space(seeds: list[dict[str, Allele]]) -> None:
    genes = widened(seeds)
    space = Space("user", genes)
    for seed in seeds:
        genome = space.genome({gene.name: seed[gene.name] for gene in genes})
        assert space.contains(genome)
    powers = next(gene for gene in genes if gene.name == "num_warps")
    assert isinstance(powers, PowerOfTwo)
