"""A policy over texts with actions that it was not trained on: tools that came after the log, by the vectors of their texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from logforge.learning.policies.bundle import PolicyBundle
from logforge.learning.policies.card import Golden
from logforge.learning.policies.layers import Layer, Layers
from logforge.learning.policies.side_inputs import SideInputs, check_vectors
from logforge.schemas import UsageError

_NEVER: Final = -1e9
"""The clone's logit of what the log never did: no chance, and a finite number."""


def with_actions(bundle: PolicyBundle, vectors: Mapping[str, NDArray[Any]]) -> PolicyBundle:
    """The policy over further actions, by name and vector [K] (`action_vectors` of the policy's own StateServer).

    Their ids follow those that it has, so masks get a column for each. The log says nothing of them: their `support` is 0. States
    come from the server of the policy without them. Raises UsageError for a policy that knows actions by their ids, and for a
    name that it has.
    """
    card, side = bundle.card, bundle.side
    if side is None:
        raise UsageError(
            f"the {card.algo} policy knows actions by their ids alone",
            "train one that knows texts: logforge train DATASET --algo text_q",
        )
    if known := sorted(set(vectors) & set(card.actions)):
        raise UsageError(f"the policy knows {known[0]!r} already", "name actions that it does not have")
    if not vectors:
        return bundle
    rows = check_vectors(np.array([*vectors.values()]), side.vectors.shape[1])
    grown = replace(
        bundle,
        behaviour=_unlikely(bundle.behaviour, len(rows)),
        files={},
        side=SideInputs(np.concatenate([side.vectors, rows]), side.policies),
        card=msgspec.structs.replace(card, actions=(*card.actions, *vectors), files={}),
    )
    seen = card.golden.observations
    golden = Golden(seen, grown.scores(np.asarray(seen, np.float32)).tolist() if seen else [])
    return replace(grown, card=msgspec.structs.replace(grown.card, golden=golden))


def _unlikely(behaviour: Layers, count: int) -> Layers:
    """The clone with so many outputs more, which have no chance."""
    if not behaviour:
        return behaviour
    *before, last = behaviour
    weight = np.concatenate([last.weight, np.zeros((count, last.weight.shape[1]), np.float32)])
    return (*before, Layer(weight, np.concatenate([last.bias, np.full(count, _NEVER, np.float32)])))
