"""A second output of the acting network, over argument templates: which tool, and then which kind of call of it.

The head reads what the last hidden layer says and learns by cross-entropy of the logged template among those of the logged
action. A step without a template teaches it nothing, and what it learns moves the layers it shares with the scores of actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logforge.learning.policies import Layers, linear, make_network, member_layers, stacked, trunk
from logforge.learning.training.experience import Drawn
from logforge.schemas import Manifest, UsageError

if TYPE_CHECKING:
    import torch

    from logforge.learning.policies import Network

_APART = 1 << 33
"""Added to a member's seed: the head draws its weights without touching what the other layers draw."""


class TemplateHead:
    """The head of all members; `owners` [templates] are the actions that the templates belong to."""

    def __init__(
        self,
        owners: Sequence[int],
        seeds: Sequence[int],
        hidden: int,
        weight: float = 1.0,
        device: str = "cpu",
    ) -> None:
        import torch

        self.owners = torch.tensor(owners, device=device)
        self.weight = weight
        generators = [torch.Generator().manual_seed(seed + _APART) for seed in seeds]
        made = make_network((hidden, len(owners)), generators)
        self.network: Network = [part.to(device).requires_grad_() for part in made]

    @classmethod
    def of(
        cls, manifest: Manifest, seeds: Sequence[int], hidden: int, weight: float = 1.0, device: str = "cpu"
    ) -> TemplateHead:
        """The head over a dataset's templates; raises UsageError where it has none."""
        if not manifest.argument_templates:
            remedy = "train with one head, or build the dataset with --action-level tool+template"
            raise UsageError(f"the dataset {manifest.dataset!r} has no argument templates", remedy)
        owners = [manifest.vocabulary.id(item.action) for item in manifest.argument_templates]
        return cls(owners, seeds, hidden, weight, device)

    @property
    def parameters(self) -> Network:
        """What is learnt."""
        return self.network

    def losses(self, acting: Network, batch: Drawn) -> dict[str, torch.Tensor]:
        """The cross-entropy of each member [members], as a mean over all rows: those without a template add nothing."""
        import torch

        logits = linear(trunk(acting, batch.observations), *self.network)
        taken = batch.templates.clamp(min=0)
        has = batch.templates >= 0
        own = self.owners == self.owners[taken][:, :, None]
        unlikely = logits.masked_fill(~own, float("-inf")).logsumexp(dim=2)
        unlikely = unlikely - logits.gather(2, taken[:, :, None])[:, :, 0]
        found = torch.where(has, unlikely, torch.zeros_like(unlikely)) * batch.weights
        return {"template": self.weight * found.mean(dim=1)}

    def layers(self, member: int) -> Layers:
        """A member's head in numpy."""
        return member_layers(self.network, member)

    def start(self, members: Sequence[Layers]) -> None:
        """Begin with these weights, one set for each member."""
        import torch

        with torch.no_grad():
            for part, given in zip(self.network, stacked(members), strict=True):
                part.copy_(given)
