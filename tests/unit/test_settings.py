"""Campaign settings: every key checked, files and flags merged, one clear line each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelarc.engine._settings import CampaignSettings
from kernelarc.genomes import InputError


def test_the_default_budget_is_300_unless_seconds_are_given() -> None:
    assert CampaignSettings(target="gemm").budget == 300
    assert CampaignSettings(target="gemm", seconds=5).budget is None


def test_json_round_trip_keeps_everything_but_the_invocation() -> None:
    settings = CampaignSettings(
        target="gemm",
        device="cpu",
        axes={"M": 64},
        workloads=({"M": 256}, {"M": 512, "N": 8}),
        options={"residual": True},
        pins={"threads": "2"},
        seed_genomes=(Path("a.json"),),
        strategies={"tile_m": "tensor_core"},
        seconds=2.5,
        islands=("memory", "fusion"),
        without=("fusion",),
        retention=None,
        margin=0.01,
        window=4,
    )
    assert CampaignSettings.from_json(settings.to_json()) == settings
    assert settings.active_islands() == ("memory",)
    assert not {"store", "log", "json"} & set(settings.to_json())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"budget": 0}, "budget must be a whole number from 1"),
        ({"budget": -3}, "budget must be a whole number from 1"),
        ({"budget": 2.5}, "not 2.5"),
        ({"budget": True}, "not True"),
        ({"seconds": 0}, "seconds must be a number above 0"),
        ({"seconds": float("nan")}, "seconds must be a number"),
        ({"set": {"M": 0}}, "set M must be a whole number from 1 to 2147483647, not 0"),
        ({"set": {"M": 2**31}}, "not 2147483648"),
        ({"set": {"M": 1.5}}, "not 1.5"),
        ({"set": 3}, "set must be a table"),
        ({"workload": 3}, "workload must be a table of name = value, or a list of them"),
        ({"workload": [3]}, "workload 1 must be a table"),
        ({"workload": [{"M": 1}, {}]}, "workload 2 is empty"),
        ({"workload": [{"M": 1}, {"M": 0}]}, "workload 2 M must be a whole number from 1"),
        ({"workload": [{"M": 1}, {"M": 2}, {"M": 1}]}, "workload 3 repeats workload 1"),
        ({"islands": "memroy"}, "did you mean 'memory'?"),
        ({"islands": []}, "islands must be a list of at least 1"),
        ({"islands": ["memory", "memory"]}, "without repetitions"),
        ({"islands": "memory", "without": "memory"}, "leave no island"),
        ({"strategy": {"tile": "tensorcore"}}, "did you mean 'tensor_core'?"),
        ({"pin": {"tile": ""}}, "pin tile must be an allele"),
        ({"seed_genome": 3}, "seed_genome must be a path"),
        ({"margin": -0.1}, "margin must be a number from 0 to 1"),
        ({"baselines": ""}, "baselines must be a text that is not empty"),
        ({"baselines": []}, "baselines must be a list of at least 1"),
        ({"baselines": 3}, "baselines must be a list"),
        ({"baselines": "eager,all"}, "baselines: 'all' stands alone"),
        ({"baselines": ["eager", "torch sdpa"]}, "baselines: 'eager' stands alone"),
        ({"baselines": "torch sdpa,torch sdpa"}, "without repetitions"),
        ({"retention": 0}, "retention must be a whole number from 1"),
        ({"buget": 3}, "unknown key 'buget' (did you mean 'budget'?)"),
        ({"target": ""}, "target must be a text"),
        ({"share_log": 1}, "share_log must be true or false"),
        ({"seed": -1}, "seed must be a whole number from 0"),
    ],
)
def test_wrong_values_are_refused_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        CampaignSettings.from_values({"target": "gemm", **values})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_read_and_flags_override_it(tmp_path: Path) -> None:
    (tmp_path / "space.json").write_text("{}")
    path = tmp_path / "campaign.toml"
    path.write_text(
        'target = "space.json"\nbudget = 40\nseed_genome = "first.json"\n[set]\nM = 8\nN = 9\n'
    )
    settings = CampaignSettings.from_toml(path, {"budget": 50, "set": {"N": 10}})
    assert settings.target == str(tmp_path / "space.json")
    assert settings.seed_genomes == (tmp_path / "first.json",)
    assert settings.budget == 50
    assert settings.axes == {"M": 8, "N": 10}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('target = "gemm"\nbudget 3\n', "line 2, column 8"),
        ('target = "gemm', "line 1, column 15"),
        ('target = "gemm"\nbudgt = 3\n', "unknown key 'budgt' (did you mean 'budget'?)"),
        ("budget = 3\n", "the key 'target' is missing"),
        ('target = "gemm"\nbudget = 0\n', "budget must be"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "campaign.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        CampaignSettings.from_toml(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_file_that_is_no_text_or_absent_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "b.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, message in ((binary, "not UTF-8"), (tmp_path / "no.toml", "cannot be read")):
        with pytest.raises(InputError, match=message):
            CampaignSettings.from_toml(path)


def test_baselines_are_named_or_one_word_and_all_of_them_is_as_if_nothing_were_said(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.toml"
    path.write_text('target = "matmul"\nbaselines = ["torch sdpa", "torch compile"]\n')
    named = CampaignSettings.from_toml(path)
    assert named.baselines == ("torch sdpa", "torch compile")
    assert CampaignSettings.from_json(named.to_json()) == named
    quick = CampaignSettings.from_toml(path, {"baselines": "eager"})
    assert quick.baselines == ("eager",) and quick.to_json()["baselines"] == ["eager"]
    every = CampaignSettings.from_toml(path, {"baselines": "all"})
    assert every == CampaignSettings(target="matmul") and "baselines" not in every.to_json()


def test_every_field_has_a_key() -> None:
    assert len(CampaignSettings.keys()) == len(CampaignSettings.__dataclass_fields__)


def test_workloads_are_tables_of_a_campaign_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('target = "matmul"\n[set]\nN = 8\n[[workload]]\nM = 1\n[[workload]]\nM = 2\n')
    assert CampaignSettings.from_toml(path).workloads == ({"M": 1}, {"M": 2})
    path.write_text('target = "matmul"\nworkload = [{M = 1}, {M = 3}]\n')
    assert CampaignSettings.from_toml(path).workloads == ({"M": 1}, {"M": 3})
    flags = {"workload": [{"M": 9}]}
    assert CampaignSettings.from_toml(path, flags).workloads == ({"M": 9},)
