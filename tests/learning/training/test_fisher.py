"""The Fisher diagonal against one gradient at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.learning.policies.layers import Layer
from logforge.learning.training.fisher import fisher

torch = pytest.importorskip("torch")
SIZES = ((4, 3), (4, 4), (5, 4))


def by_gradients(layers, rows, masks, kind):
    """Σ over states and allowed actions of chance × (∂ log-likelihood)², by autograd, one pair at a time."""
    parts = [
        torch.tensor(array, dtype=torch.float64, requires_grad=True) for layer in layers for array in layer
    ]
    total = [torch.zeros_like(part) for part in parts]
    for row, mask in zip(rows, masks, strict=True):
        hidden = torch.tensor(row, dtype=torch.float64)
        for place in range(0, len(parts), 2):
            hidden = hidden @ parts[place].T + parts[place + 1]
            hidden = torch.relu(hidden) if place + 2 < len(parts) else hidden
        allowed = np.flatnonzero(mask)
        log = hidden[allowed].log_softmax(dim=0)
        for place, action in enumerate(allowed):
            drawn, chance = (
                (log[place], log[place].exp().item()) if kind == "logits" else (hidden[action], 1.0)
            )
            slopes = torch.autograd.grad(drawn, parts, retain_graph=True)
            total = [sum_ + chance * slope**2 for sum_, slope in zip(total, slopes, strict=True)]
    return [(sum_ / len(rows)).numpy() for sum_ in total]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["q", "logits"]))
def test_it_is_the_expected_squared_gradient(seed, kind):
    rng = np.random.default_rng(seed)
    layers = tuple(
        Layer(rng.normal(size=shape).astype(np.float32), rng.normal(size=shape[0]).astype(np.float32))
        for shape in SIZES
    )
    rows = rng.normal(size=(6, 3)).astype(np.float32)
    masks = rng.random((6, 5)) < 0.6
    masks[:, 1] = True
    masks[:, 4] = False
    found = [array for layer in fisher(layers, rows, masks, kind) for array in layer]
    for mine, theirs in zip(found, by_gradients(layers, rows, masks, kind), strict=True):
        assert np.allclose(mine, theirs, rtol=1e-3, atol=1e-5)
    assert (found[-1][4] == 0).all()  # an action never on offer tells nothing
