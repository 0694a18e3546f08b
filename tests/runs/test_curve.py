"""The picture of one run."""

from __future__ import annotations

import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.image import imread

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.runs.config_file import to_yaml
from torchrl_elegant.runs.curve import draw_curve
from torchrl_elegant.runs.folder import RunFolder
from torchrl_elegant.runs.trial import Trial
from torchrl_elegant.trainers.run_config import RunConfig

COLUMNS = ["frames", "updates", "return_mean", "return_std", "length_mean", "train_return"]
LOSSES = ["loss_qvalue", "alpha"]
AXES = ["return of an episode", "episode length", "loss of the values", "entropy, temperature"]


@pytest.fixture
def figures(monkeypatch):
    """Every figure that is saved, to look at what was drawn."""
    seen = []
    real = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: seen.append(self) or real(self, *a, **k)
    )
    return seen


def run_with(path, rows):
    config = to_yaml("toy", RunConfig(env="Pendulum-v1", seed=7), RunConfig())
    run = RunFolder.create(path, config=config, columns=COLUMNS + LOSSES)
    for index in range(1, rows + 1):
        row = {"frames": 100 * index, "return_mean": -10.0 + index, "return_std": 2.0}
        row |= {"length_mean": 200, "loss_qvalue": 30.0, "alpha": 0.1}
        run.metrics.append(row | ({"train_return": -20.0} if index > 1 else {}))
    return run


@pytest.mark.parametrize("rows", [0, 1, 30])
def test_any_number_of_rows(tmp_path, figures, rows):
    run = run_with(tmp_path / "x", rows)
    assert draw_curve(run.path) == run.curve_path
    assert min(imread(run.curve_path).shape[:2]) > 600
    assert figures[0].get_suptitle() == "Pendulum-v1   toy   seed 7"
    assert all(bool(axes.lines) == (rows > 0) for axes in figures[0].axes)
    assert len(figures[0].axes) == (4 if rows else 1)


def test_lines_and_band_show_the_rows(tmp_path, figures):
    draw_curve(run_with(tmp_path / "x", 3).path)
    returns, lengths, values, temperature = figures[0].axes
    lines = {line.get_label(): line for line in returns.lines}
    assert lines["evaluation"].get_xydata().tolist() == [[100, -9], [200, -8], [300, -7]]
    assert lines["training episodes"].get_xydata().tolist() == [[200, -20], [300, -20]]
    assert lines["best -7"].get_xydata().tolist() == [[300, -7]]
    band = returns.collections[0].get_paths()[0].get_extents()
    assert (band.ymin, band.ymax) == (-11, -5)
    assert lengths.lines[0].get_ydata().tolist() == [200, 200, 200]
    assert [line.get_label() for line in values.lines] == ["loss_qvalue"]
    assert [line.get_label() for line in temperature.lines] == ["alpha"]
    assert [axes.get_ylabel() for axes in figures[0].axes] == AXES


def test_a_wide_range_of_losses_is_drawn_and_named_symlog(tmp_path, figures):
    run = run_with(tmp_path / "x", 5)
    run.metrics.append({"frames": 600, "loss_qvalue": 3e5, "alpha": 0.2})
    draw_curve(run.path)
    values, temperature = figures[0].axes[2:]
    assert values.get_yscale() == "symlog"
    assert values.get_ylabel() == "loss of the values (symlog)"
    assert (temperature.get_yscale(), temperature.get_ylabel()) == ("linear", AXES[3])


@pytest.mark.parametrize("name", sorted(n for n, kind in ALGORITHMS.items() if not kind.teams))
def test_a_panel_holds_few_lines_and_nothing_is_drawn_twice(tmp_path, figures, name):
    """Rows of every algorithm, with a column that a callback logged."""
    with Trial(ALGORITHMS[name](num_cells=(8,)), total_frames=30_000) as trial:
        names = ["frames", "return_mean", "length_mean", *trial.learner.metric_names, "mine"]
    run = RunFolder.create(tmp_path / "x", config="", columns=names)
    for frames in (100, 200):
        run.metrics.append({**dict.fromkeys(names, 1.0), "frames": frames})
    draw_curve(run.path)
    drawn = [[line.get_label() for line in axes.lines] for axes in figures[0].axes[1:]]
    assert all(0 < len(labels) <= 4 for labels in drawn)
    labels = [label for panel in drawn for label in panel]
    assert len(labels) == len(set(labels))
    assert drawn[-1] == ["mine"]
    # Nothing that an algorithm reports today is left for a panel of its own.
    assert len([labels for labels in drawn if labels[0] in trial.learner.metric_names]) <= 5


def test_torn_and_infinite_rows(tmp_path, figures):
    run = run_with(tmp_path / "x", 2)
    run.metrics.append({"frames": 300, "return_mean": float("nan"), "loss_qvalue": float("inf")})
    with run.metrics.path.open("a") as file:
        file.write("400,1,")
    draw_curve(run.path)
    assert len(figures[0].axes[0].lines[1].get_xdata()) == 2


def test_without_config_the_folder_names_the_run(tmp_path, figures):
    run = run_with(tmp_path / "mine", 1)
    run.config_path.unlink()
    draw_curve(run.path)
    assert figures[0].get_suptitle() == "mine"


def test_pyplot_holds_no_figure(tmp_path):
    mine = pyplot.figure()
    draw_curve(run_with(tmp_path / "x", 2).path)
    assert pyplot.get_fignums() == [mine.number]
    assert pyplot.gcf() is mine
    pyplot.close(mine)


def test_a_name_with_dollars_is_no_formula(tmp_path):
    (tmp_path / "metrics.csv").write_text("frames,return_mean,cost $_$\n100,1.5,2\n")
    assert draw_curve(tmp_path).is_file()
