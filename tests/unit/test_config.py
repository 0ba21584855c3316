"""Settings: command line over environment over file, and no silent typo."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.config import Settings, load
from assay.errors import ConfigError


def test_the_command_line_wins_over_the_environment_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.assay]\nbudget = "full"\nseeds = 4\nseed = 1\n')
    environment = {"ASSAY_SEEDS": "5", "ASSAY_SEED": "2", "HOME": "/"}
    settings = load(tmp_path, environment=environment, seed=3, seeds=None)
    assert (settings.budget, settings.seeds, settings.seed) == ("full", 5, 3)


def test_assay_toml_comes_before_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.assay]\nseeds = 4\n")
    (tmp_path / "assay.toml").write_text('seeds = 6\nplugins = ["my.tracks"]\n')
    assert load(tmp_path, environment={}) == Settings(seeds=6, plugins=("my.tracks",))


def test_no_file_gives_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert load(tmp_path, environment={}) == Settings()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("sedes = 3", "did you mean 'seeds'"),
        ("seeds = 0", "seeds >= 1"),
        ("seeds = true", "seeds >= 1"),
        ("seed = -1", "seed >= 0"),
        ('budget = "quik"', "did you mean 'quick'"),
        ('plugins = "one"', "list of module names"),
        ("out = 3", "text"),
        ("seeds = ", "not valid TOML"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "assay.toml").write_text(content)
    with pytest.raises(ConfigError, match=complaint) as caught:
        load(tmp_path, environment={})
    assert "\n" not in str(caught.value)


def test_a_misspelt_or_malformed_variable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'workers'"):
        load(tmp_path, environment={"ASSAY_WORKRES": "2"})
    with pytest.raises(ConfigError, match="whole number in ASSAY_SEEDS"):
        load(tmp_path, environment={"ASSAY_SEEDS": "many"})
