"""`support-escalation`: answer a customer's ticket, or hand it to a person when that is right. Six hidden kinds.

The desk is strict: a tool that needs something first says so and does nothing. A ticket has to be classified, and a vague
one asked about; an account is touched only after its number was asked for and the identity confirmed. The knowledge base is
incomplete, and what it lacks has to be escalated, as has fraud, for a customer whose identity is confirmed. Who asks for a
person gets one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import product
from typing import ClassVar

import numpy as np

from logforge.envs.world import (
    CHANGED,
    COMMON,
    Bools,
    Column,
    Difficulty,
    Floats,
    Handler,
    Ints,
    Reply,
    World,
    ending,
    running,
)

DETAILS, ACCOUNT, IDENTITY, TOPIC, ORDER, ARTICLE, SERVICE, DONE, KIND, VAGUE = range(2, 12)
LOGIN, REFUND_DUE, REFUND_NOT_DUE, KNOWN, UNKNOWN, FRAUD = range(6)
TOPIC_OF = np.array([1, 2, 2, 3, 3, 4])
TOPICS = ("login", "refund", "how_to", "fraud")
UNCLEAR = 5
SOLUTIONS = ("reset_password", "issue_refund", "decline_refund", "send_article", "update_contact")
RIGHT = np.array([1, 2, 3, 4, -1, -1])
"""The solution of each kind; the last two have none but escalation."""
SEVERAL = 6
_WEIGHTS = {"login": 0.25, "refund": 0.30, "how_to": 0.30, "fraud": 0.15}
_DUE = 0.6


class Support(World):
    """Columns: the customer gave details, and the account's number; identity confirmed; the ticket's class; what order,
    article and service status showed; what was done. Hidden: the kind of problem, and whether the opening is vague."""

    name: ClassVar[str] = "support-escalation"
    kinds: ClassVar[tuple[str, ...]] = ("login", "refund", "how_to", "fraud")
    tools: ClassVar[tuple[str, ...]] = (
        "check_service_status", "classify_ticket", "close_ticket", "decline_refund", "escalate_ticket", "issue_refund",
        "look_up_order", "reset_password", "search_articles", "send_article", "update_contact", "verify_identity",
    )  # fmt: skip
    columns: ClassVar[tuple[Column, ...]] = (
        Column("steps", 21), Column("changed", 2), Column("details", 2), Column("account", 2), Column("identity", 2),
        Column("topic", 6), Column("order", 4), Column("article", 3), Column("service", 2), Column("done", 7),
        Column("kind", 6, False), Column("vague", 2, False),
    )  # fmt: skip
    replies: ClassVar[tuple[str, ...]] = (
        *COMMON,
        "gives_details", "gives_account",
        "need_class", "need_account", "need_identity", "need_article",
        "identity_confirmed",
        *(f"class_{name}" for name in TOPICS), "class_unclear",
        "order_due", "order_not_due", "order_none",
        "article_found", "article_none", "service_fine",
        *(f"{name}_done" for name in SOLUTIONS),
        "closed", "reopened", "handed_over", "handed_back",
    )  # fmt: skip
    refusals: ClassVar[frozenset[str]] = frozenset(
        {"need_class", "need_account", "need_identity", "need_article"}
    )
    usual: ClassVar[Difficulty] = Difficulty(missing_knowledge=0.35, impatience=0.07, trap=0.25)

    def starts(self) -> tuple[Ints, Floats]:
        """Kind by kind, with a vague opening or a clear one."""
        kinds = self._kinds()
        vague = (1 - self.difficulty.trap, self.difficulty.trap)
        pairs = list(product(kinds, (0, 1)))
        rows = np.zeros((len(pairs), len(self.columns)), np.int16)
        for row, pair in enumerate(pairs):
            rows[row, [KIND, VAGUE]] = pair
        return rows, np.array([kinds[kind] * vague[is_vague] for kind, is_vague in pairs])

    def _kinds(self) -> dict[int, float]:
        missing = self.difficulty.missing_knowledge
        shares = {
            "login": {LOGIN: 1.0},
            "refund": {REFUND_DUE: _DUE, REFUND_NOT_DUE: 1 - _DUE},
            "how_to": {KNOWN: 1 - missing, UNKNOWN: missing},
            "fraud": {FRAUD: 1.0},
        }
        names = self.kinds[: self.difficulty.kinds or len(self.kinds)]
        total = sum(_WEIGHTS[name] for name in names)
        return {
            kind: _WEIGHTS[name] / total * share for name in names for kind, share in shares[name].items()
        }

    def spoken(self, states: Ints) -> Reply:
        """A vague customer says more at first, so that the ticket can be classified anew; then, and otherwise, the account's
        number."""
        vague = (states[:, VAGUE] == 1) & (states[:, DETAILS] == 0)
        states[:, DETAILS] |= vague.astype(np.int16)
        states[vague, TOPIC] = 0
        states[:, ACCOUNT] |= (~vague).astype(np.int16)
        return running(np.where(vague, self.code["gives_details"], self.code["gives_account"]))

    @cached_property
    def handlers(self) -> Mapping[str, Handler]:
        """What each tool does."""
        return {
            "classify_ticket": self._classify,
            "verify_identity": self._verify,
            "look_up_order": self._look_up_order,
            "search_articles": self._search,
            "check_service_status": self._check_service,
            "close_ticket": self._close,
            "escalate_ticket": self._escalate,
            **{name: self._solve(number) for number, name in enumerate(SOLUTIONS, 1)},
        }

    def _classify(self, states: Ints, luck: Bools) -> Reply:
        clear = (states[:, VAGUE] == 0) | (states[:, DETAILS] == 1)
        states[:, TOPIC] = np.where(clear, TOPIC_OF[states[:, KIND]], UNCLEAR)
        return running(self.code["class_login"] - 1 + states[:, TOPIC])

    def _verify(self, states: Ints, luck: Bools) -> Reply:
        states[:, IDENTITY] |= states[:, ACCOUNT]
        known = states[:, IDENTITY] == 1
        return running(np.where(known, self.code["identity_confirmed"], self.code["need_account"]))

    def _look_up_order(self, states: Ints, luck: Bools) -> Reply:
        allowed, kind = states[:, IDENTITY] == 1, states[:, KIND]
        shown = np.where(kind == REFUND_DUE, 0, np.where(kind == REFUND_NOT_DUE, 1, 2))
        states[:, ORDER] = np.where(allowed, shown + 1, states[:, ORDER])
        return running(np.where(allowed, self.code["order_due"] + shown, self.code["need_identity"]))

    def _search(self, states: Ints, luck: Bools) -> Reply:
        classified = _classified(states)
        found = np.where(states[:, KIND] == KNOWN, 1, 2)
        states[:, ARTICLE] = np.where(classified, found, states[:, ARTICLE])
        return running(np.where(classified, self.code["article_found"] - 1 + found, self.code["need_class"]))

    def _check_service(self, states: Ints, luck: Bools) -> Reply:
        states[:, SERVICE] = 1
        return running(np.full(len(states), self.code["service_fine"]))

    def _solve(self, number: int) -> Handler:
        by_article = SOLUTIONS[number - 1] == "send_article"
        needed, missing = (ARTICLE, "need_article") if by_article else (IDENTITY, "need_identity")

        def solve(states: Ints, luck: Bools) -> Reply:
            classified, before = _classified(states), states[:, DONE]
            ready = classified & (states[:, needed] == 1)
            after = np.where((before == 0) | (before == number), number, SEVERAL)
            states[:, DONE] = np.where(ready, after, before)
            refusal = np.where(classified, self.code[missing], self.code["need_class"])
            return running(np.where(ready, self.code["reset_password_done"] + number - 1, refusal))

        return solve

    def _close(self, states: Ints, luck: Bools) -> Reply:
        solved = (states[:, DONE] == RIGHT[states[:, KIND]]) & (states[:, CHANGED] == 0)
        return ending(solved, self.code["closed"], self.code["reopened"])

    def _escalate(self, states: Ints, luck: Bools) -> Reply:
        kind = states[:, KIND]
        lacking = (kind == UNKNOWN) & (states[:, ARTICLE] == 2)
        due = (lacking | ((kind == FRAUD) & _classified(states))) & (states[:, IDENTITY] == 1)
        right = (states[:, CHANGED] == 1) | (due & (states[:, DONE] == 0))
        return ending(right, self.code["handed_over"], self.code["handed_back"])


def _classified(states: Ints) -> Bools:
    topic = states[:, TOPIC]
    classified: Bools = (topic > 0) & (topic != UNCLEAR)
    return classified
