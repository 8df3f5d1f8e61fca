"""The masked learners: what they minimise, by hand; masks and range of returns; members that do not know each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from logforge.core.extras import one_thread
from logforge.core.intervals import Span
from logforge.core.stored_rows import StoredRows
from logforge.learning.policies.networks import forward
from logforge.learning.policies.side_inputs import SideInputs
from logforge.learning.training.experience import Replay
from logforge.learning.training.learners import LEARNERS, Fit, Rules
from logforge.learning.training.text_q import SideTensors
from logforge.rewards.returns import possible_returns
from support import made_chain as chain
from support.made_chain import ALLOWED, CELLS, FORWARD, GAMMA, OFFLINE, VOCABULARY
from support.thoroughness import enough

torch = pytest.importorskip("torch")
OBSERVATIONS = np.eye(CELLS, dtype=np.float32)
SPAN = Span(-10.0, 9.9)
RULES = Rules(GAMMA, SPAN)
SIZES = (CELLS, 16, VOCABULARY.size)


def told(name, rules=RULES, device="cpu"):
    """The rules; for a network over texts with a vector of its own for every action."""
    if name != "text_q":
        return rules
    inputs = SideInputs(np.eye(VOCABULARY.size, dtype=np.float32), np.zeros((1, 0), np.float32))
    parts = (torch.eye(VOCABULARY.size), torch.zeros(2, 0), torch.tensor([-1]))
    return replace(rules, side=SideTensors(inputs, (), *(part.to(device) for part in parts)))


def fitted(name, arrays, seeds=(0,), updates=5, rules=RULES, rate=0.005):
    replay = Replay(arrays, VOCABULARY.invalid)
    fit = Fit(LEARNERS[name], told(name, rules), seeds, SIZES, 1e-2, rate)
    losses = []
    with one_thread():
        for _, batch in zip(range(updates), replay.batches(seeds, 32), strict=False):
            losses.append(fit.update(batch))
    return fit, losses


def scores(fit, member=0):
    return fit.scores(OBSERVATIONS, member)


def with_more(arrays, **changes):
    return replace(arrays, **changes)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_member_is_what_it_is_alone(name):
    arrays = chain.walk(20, 0.5)
    together, _ = fitted(name, arrays, (3, 4, 5), 20)
    for member, seed in enumerate((3, 4, 5)):
        alone, _ = fitted(name, arrays, (seed,), 20)
        np.testing.assert_allclose(scores(together, member), scores(alone), atol=1e-4)
    assert not np.allclose(scores(together, 0), scores(together, 1), atol=1e-2)


@pytest.mark.parametrize("name", LEARNERS)
def test_what_was_not_on_offer_takes_no_part(name):
    """Whatever the scores of a masked action are, no loss looks at them: they get no gradient and change nothing."""
    arrays = chain.walk(20, 0.5)
    replay = Replay(arrays, VOCABULARY.invalid)
    batch = next(replay.batches((0,), 64))
    fit = Fit(LEARNERS[name], told(name, replace(RULES, penalty=0.0)), (0,), SIZES, 1e-2, 0.005)
    absent = [OFFLINE, VOCABULARY.invalid]
    before = {
        key: value.item()
        for key, value in LEARNERS[name].losses(fit.online, fit.target, batch, fit.rules).items()
    }
    with torch.no_grad():
        for networks in (fit.online, fit.target):
            for network in networks.values():
                if network[-1].shape[-1] == VOCABULARY.size:
                    network[-1][:, :, absent] += 1000.0
                if name == "text_q":
                    network[0][:, [CELLS + place for place in absent]] += 1000.0
    after = LEARNERS[name].losses(fit.online, fit.target, batch, replace(fit.rules, penalty=0.0))
    assert {key: value.item() for key, value in after.items()} == pytest.approx(before)
    assert OFFLINE not in ALLOWED


def test_a_logged_action_outside_its_mask_is_learnt_from_and_never_a_target():
    arrays = chain.walk(20, 0.5)
    masks = arrays.masks.copy()
    masks[:, FORWARD] = False
    batch = Replay(with_more(arrays, masks=masks), VOCABULARY.invalid).batch(torch.arange(arrays.size)[None])
    taken = batch.known.gather(2, batch.actions[:, :, None])
    assert taken.all()
    assert not batch.next_allowed[:, :, FORWARD].any()


def test_cqls_loss_is_that_of_the_definition():
    """By hand: Huber of r + γ Q'(s', argmax Q(s', allowed)) − Q(s, a), and α (log Σ exp Q(s, known) − Q(s, a))."""
    arrays = chain.walk(6, 0.5)
    replay = Replay(arrays, VOCABULARY.invalid)
    rules = Rules(GAMMA, SPAN, alpha=0.7)
    fit = Fit(LEARNERS["cql"], rules, (1,), SIZES, 1e-2, 0.005)
    with torch.no_grad():
        for part in fit.target["q"]:
            part += 0.05
    losses = LEARNERS["cql"].losses(
        fit.online, fit.target, replay.batch(torch.arange(arrays.size)[None]), rules
    )
    q, followed = (
        forward(network["q"], torch.from_numpy(arrays.observations))[0].detach().numpy()
        for network in (fit.online, fit.target)
    )
    errors, gaps = [], []
    for k, (row, action) in enumerate(zip(arrays.observation_rows, arrays.actions, strict=True)):
        best = max(ALLOWED, key=lambda a, at=row: q[at + 1, a])
        goal = arrays.rewards[k] + (0 if arrays.terminals[k] else GAMMA * followed[row + 1, best])
        error = abs(np.clip(goal, *SPAN) - q[row, action])
        errors.append(0.5 * error**2 if error < 1 else error - 0.5)
        gaps.append(np.log(np.exp(q[row, ALLOWED]).sum()) - q[row, action])
    assert losses["td"].item() == pytest.approx(np.mean(errors), rel=1e-4)
    assert losses["conservative"].item() == pytest.approx(0.7 * np.mean(gaps), rel=1e-4)


def test_a_truncated_episode_bootstraps_from_its_final_observation():
    arrays = chain.walk(1, 0.0, limit=3)
    assert arrays.timeouts[-1]
    batch = Replay(arrays, VOCABULARY.invalid).batch(torch.tensor([[2]]))
    assert batch.goes_on.item() == 1
    assert (batch.next_observations[0, 0].numpy() == arrays.observations[-1]).all()


def test_observations_in_several_files_or_as_float16_are_drawn_alike():
    arrays = chain.walk(10, 0.5)
    halves = np.array_split(arrays.observations.astype(np.float16), 3)
    stored = with_more(arrays, observations=StoredRows(halves, np.dtype(np.float32)).as_array())
    one, other = (next(Replay(a, VOCABULARY.invalid).batches((0, 1), 16)) for a in (arrays, stored))
    for mine, theirs in zip(one, other, strict=True):
        assert torch.equal(mine, theirs)


def test_targets_stay_within_the_range_of_returns():
    """Rewards that no return can be: without the clip Q would follow them."""
    arrays = chain.walk(20, 0.5)
    wild = with_more(arrays, rewards=np.full(arrays.size, 50.0, np.float32))
    fit, _ = fitted("dqn", wild, updates=600, rate=0.1)
    assert scores(fit)[:5, ALLOWED].max() < SPAN.high + 1.5
    free, _ = fitted("dqn", wild, updates=600, rate=0.1, rules=Rules(GAMMA, Span(-np.inf, np.inf)))
    assert scores(free)[:5, ALLOWED].max() > 100


def test_weights_of_samples_count():
    """Steps that weigh nothing are as if they were not there: here, all that went forward."""
    arrays = chain.walk(60, 0.5)
    weights = (arrays.actions != FORWARD).astype(np.float32)
    fit, _ = fitted("bc", with_more(arrays, weights=weights), updates=200)
    assert (
        scores(fit)[:5, FORWARD] < scores(fit)[:5, [a for a in ALLOWED if a != FORWARD]].min(axis=1)
    ).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here: the same code runs on it")
@pytest.mark.parametrize("name", ["cql", "text_q"])
def test_a_gpu_learns_what_the_cpu_does(name):
    arrays, seeds = chain.walk(20, 0.5), (0, 1)
    found = []
    for device in ("cpu", "cuda"):
        fit = Fit(LEARNERS[name], told(name, device=device), seeds, SIZES, 1e-2, 0.005, device)
        batches = Replay(arrays, VOCABULARY.invalid, device).batches(seeds, 32)
        for _, batch in zip(range(20), batches, strict=False):
            fit.update(batch)
        found.append(scores(fit, 1))
    np.testing.assert_allclose(*found, atol=1e-2)


def test_the_target_follows_softly():
    arrays = chain.walk(5, 0.5)
    replay = Replay(arrays, VOCABULARY.invalid)
    fit = Fit(LEARNERS["cql"], RULES, (0,), SIZES, 1e-2, 0.25)
    before = [part.clone() for part in fit.target["q"]]
    fit.update(next(replay.batches((0,), 8)))
    for old, now, online in zip(before, fit.target["q"], fit.online["q"], strict=True):
        np.testing.assert_allclose(now, 0.75 * old + 0.25 * online.detach(), atol=1e-6)


def test_bcq_lets_only_likely_actions_compete():
    """Forward is taken one time in fifty; where a tenth of the likeliest is asked for, its value is no part of a target."""
    arrays = chain.walk(200, 0.02, limit=200)
    span = possible_returns(arrays.rewards, arrays.terminals, arrays.timeouts, GAMMA)
    narrow, _ = fitted("bcq", arrays, updates=400, rate=0.05, rules=Rules(GAMMA, span, threshold=0.5))
    wide, _ = fitted("bcq", arrays, updates=400, rate=0.05, rules=Rules(GAMMA, span, threshold=1e-6))
    idle = [a for a in ALLOWED if a != FORWARD]
    assert scores(narrow)[4, idle].max() < scores(wide)[4, idle].max() - 2


@pytest.mark.parametrize("name", ["cql", "dqn", "bcq", "iql", "text_q"])
def test_members_go_forward_where_the_log_did_so_one_time_in_four(name):
    arrays = chain.walk(200, 0.25)
    seen = (float(arrays.returns.min()), float(arrays.returns.max()))
    span = possible_returns(arrays.rewards, arrays.terminals, arrays.timeouts, GAMMA, seen)
    rules = told(name, Rules(GAMMA, span, threshold=0.1))
    seeds = (0, 1, 2, 3, 4) if name == "cql" else enough((0,), (0, 1, 2, 3, 4))
    fit = Fit(LEARNERS[name], rules, seeds, (CELLS, 64, 64, VOCABULARY.size), 1e-3, 0.005)
    with one_thread():
        for _, batch in zip(
            range(2000), Replay(arrays, VOCABULARY.invalid).batches(seeds, 128), strict=False
        ):
            fit.update(batch)
    for member in seeds:
        choices = np.array(ALLOWED)[scores(fit, member)[:5, ALLOWED].argmax(axis=1)]
        assert (choices == FORWARD).all()


def test_a_batch_says_who_decided_and_what_the_same_one_did_next():
    arrays = chain.walk(4, 0.5)
    deciders = np.repeat(np.arange(4), np.diff(arrays.episode_offsets)).astype(np.int32)
    deciders[arrays.episode_offsets[1] - 1] = 9  # somebody takes over for the first episode's last step
    replay = Replay(with_more(arrays, behaviour_policies=deciders), VOCABULARY.invalid)
    batch = replay.batch(torch.arange(arrays.size)[None])
    expected = np.append(arrays.actions[1:], -1)
    expected[arrays.episode_offsets[1:] - 1] = -1
    expected[arrays.episode_offsets[1] - 2] = -1
    assert batch.next_actions[0].tolist() == expected.tolist()
    assert batch.policies[0].tolist() == deciders.tolist()
