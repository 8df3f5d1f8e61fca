"""The second head: it learns which template goes with which state, and only from steps that have one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from logforge.core.intervals import Span
from logforge.learning.policies.bundle import load_policy
from logforge.learning.training.experience import Replay
from logforge.learning.training.learners import LEARNERS, Fit, Rules
from logforge.learning.training.pipeline import train
from logforge.learning.training.template_head import TemplateHead
from logforge.schemas.errors import Mismatch, UsageError
from logforge.schemas.manifest import ArgumentTemplate
from logforge.shards.reader import load_shards, write_dataset
from support import made_tasks as tasks

torch = pytest.importorskip("torch")
WORDS = tasks.vocabulary()
TEMPLATES = tuple(ArgumentTemplate(tool, how) for tool in ("a", "b") for how in ("low", "high"))
OWNERS = [WORDS.id(item.action) for item in TEMPLATES]
SETTINGS = {
    "algo": "bc",
    "updates": 300,
    "batch_size": 64,
    "hidden": (32,),
    "learning_rate": 3e-3,
    "epochs": 1,
}


def with_arguments(arrays, seed=0, known=0.9):
    """Tools a and b are called with `high` where the last feature is positive; some calls tell nothing, c and d never do."""
    rows = arrays.observations[arrays.observation_rows]
    high = rows[:, 2 + tasks.FEATURES - 1] > 0
    first = np.select([arrays.actions == WORDS.id("a"), arrays.actions == WORDS.id("b")], [0, 2], -1)
    told = (first >= 0) & (np.random.default_rng(seed).random(arrays.size) < known)
    return replace(arrays, argument_templates=np.where(told, first + high, -1).astype(np.int32))


def batch_and_fit(arrays, head=True, seeds=(0,)):
    made = TemplateHead(OWNERS, seeds, 16) if head else None
    sizes = (arrays.observations.shape[1], 16, WORDS.size)
    fit = Fit(LEARNERS["bc"], Rules(0.9, Span(0, 1)), seeds, sizes, 1e-2, 0.005, head=made)
    return next(Replay(arrays, WORDS.invalid).batches(seeds, 64)), fit


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads") / "d"
    splits = {
        name: with_arguments(tasks.task(0, count, seed, WORDS), seed)
        for seed, (name, count) in enumerate({"train": 900, "validation": 60, "test": 300}.items())
    }
    write_dataset(folder, splits, tasks.manifest(WORDS, argument_templates=TEMPLATES))
    return folder


def test_a_step_without_a_template_moves_nothing():
    """Loss and gradients are those of a batch in which such a step has no say."""
    arrays = tasks.task(0, 200, 0, WORDS)
    batch, fit = batch_and_fit(arrays)
    [loss] = fit.head.losses(fit.online["policy"], batch)["template"]
    loss.backward()
    assert loss.item() == 0
    for part in (*fit.head.parameters, *fit.online["policy"]):
        assert part.grad is None or not part.grad.any()
    some, fit = batch_and_fit(with_arguments(arrays))
    assert fit.head.losses(fit.online["policy"], some)["template"].item() > 0
    moved = some.observations.clone()
    moved[some.templates < 0] += 5
    pair = [
        fit.head.losses(fit.online["policy"], some._replace(observations=rows))["template"].item()
        for rows in (some.observations, moved)
    ]
    assert pair[0] == pytest.approx(pair[1])


def test_the_loss_is_the_cross_entropy_among_the_actions_own_templates():
    batch, fit = batch_and_fit(with_arguments(tasks.task(0, 200, 0, WORDS)))
    found = fit.head.losses(fit.online["policy"], batch)["template"].item()
    weight, bias = (part[0].detach().numpy() for part in fit.head.network)
    first, first_bias = (part[0].detach().numpy() for part in fit.online["policy"][:2])
    rows = np.maximum(batch.observations[0].numpy() @ first + first_bias, 0)
    total = 0.0
    for row, template in zip(rows @ weight + bias, batch.templates[0].numpy(), strict=True):
        if template >= 0:
            own = [place for place, owner in enumerate(OWNERS) if owner == OWNERS[template]]
            total += np.log(np.exp(row[own]).sum()) - row[template]
    assert found == pytest.approx(total / len(rows), rel=1e-4)


def test_without_arguments_the_actions_are_learnt_as_with_one_head():
    """The head draws its own weights, and a loss of nothing changes nothing."""
    arrays = tasks.task(0, 200, 0, WORDS)
    scores = []
    for head in (True, False):
        _, fit = batch_and_fit(arrays, head)
        for _, batch in zip(range(20), Replay(arrays, WORDS.invalid).batches((0,), 32), strict=False):
            fit.update(batch)
        scores.append(fit.scores(arrays.observations[:50], 0))
    assert np.allclose(scores[0], scores[1], atol=1e-5)


@pytest.mark.parametrize("algo", ["bc", "cql"])
def test_the_right_template_is_learnt_and_told(dataset, tmp_path, algo):
    train(dataset, out=tmp_path / "run", heads="tool+template", **{**SETTINGS, "algo": algo})
    policy, held = load_policy(tmp_path / "run" / algo), load_shards(dataset, "test")
    assert policy.card.templates == TEMPLATES
    rows = held.observation_rows
    found = policy.templates(np.asarray(held.observations)[rows], held.actions)
    told = held.argument_templates >= 0
    assert (found[told] == held.argument_templates[told]).mean() > 0.85
    neither = ~np.isin(held.actions, OWNERS)
    assert (found[neither] == -1).all()
    decisions = policy.decisions(np.asarray(held.observations)[rows], np.asarray(held.masks)[rows])
    for decision in decisions:
        assert (decision.template in ("low", "high")) == (decision.name in ("a", "b"))
    policy.check(held.manifest)


def test_going_on_keeps_templates_by_name(dataset, tmp_path):
    train(dataset, out=tmp_path / "run", heads="tool+template", **SETTINGS)
    later = tuple(ArgumentTemplate(*pair) for pair in (("c", "new"), ("a", "high"), ("b", "low")))
    splits = {
        name: tasks.task(0, 60, seed, WORDS) for seed, name in enumerate(("train", "validation", "test"))
    }
    write_dataset(tmp_path / "later", splits, tasks.manifest(WORDS, argument_templates=later))
    on = {**SETTINGS, "updates": 1, "learning_rate": 1e-9, "heads": "tool+template"}
    train(tmp_path / "later", out=tmp_path / "on", warm_start=str(tmp_path / "run"), **on)
    before, after = (load_policy(tmp_path / run / "bc").extras["template"][0].weight for run in ("run", "on"))
    for place, item in enumerate(later):
        same = item in TEMPLATES and np.allclose(after[place], before[TEMPLATES.index(item)], atol=1e-6)
        assert same == (item in TEMPLATES)


def test_a_dataset_without_templates_and_a_policy_of_others_are_refused(dataset, tmp_path):
    tasks.write_task(tmp_path / "plain", 0, WORDS, episodes=60)
    with pytest.raises(UsageError, match=r"no argument templates.*--action-level"):
        train(tmp_path / "plain", out=tmp_path / "x", heads="tool+template", **SETTINGS)
    with pytest.raises(UsageError, match="choice of heads"):
        train(dataset, out=tmp_path / "x", heads="three", **SETTINGS)
    train(dataset, out=tmp_path / "run", heads="tool+template", **{**SETTINGS, "updates": 1})
    with pytest.raises(Mismatch, match="argument templates"):
        load_policy(tmp_path / "run" / "bc").check(load_shards(tmp_path / "plain").manifest)
