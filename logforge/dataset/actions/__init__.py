"""Which actions there are, how they are called, and their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.dataset.actions.argument_fit import NO_CANDIDATES, fit_arguments
    from logforge.dataset.actions.arguments import NOTHING, ArgumentSpace
    from logforge.dataset.actions.names import read_aliases, renamed, resolve_aliases
    from logforge.dataset.actions.report import ActionReport
    from logforge.dataset.actions.texts import action_texts, action_vectors, action_vectors_file
    from logforge.dataset.actions.vocabulary import ALWAYS, ActionSpace, seen_in

__all__ = [
    "ALWAYS", "NOTHING", "NO_CANDIDATES", "ActionReport", "ActionSpace", "ArgumentSpace", "action_texts",
    "action_vectors", "action_vectors_file", "fit_arguments", "read_aliases", "renamed",
    "resolve_aliases", "seen_in",
]  # fmt: skip

face(
    __name__,
    argument_fit="NO_CANDIDATES fit_arguments",
    arguments="ArgumentSpace NOTHING",
    names="read_aliases renamed resolve_aliases",
    report="ActionReport",
    texts="action_texts action_vectors action_vectors_file",
    vocabulary="ALWAYS ActionSpace seen_in",
)
