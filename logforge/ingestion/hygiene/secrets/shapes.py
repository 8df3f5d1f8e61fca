"""Keys that their beginning gives away, whoever they stand beside. A wrong checksum saves none: an invented key in a log
cannot be told from a mistyped one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from logforge.ingestion.hygiene.secrets.findings import Finding


class Shape(NamedTuple):
    """A kind of key: what it begins with, and how it goes on."""

    kind: str
    begins: str
    rest: re.Pattern[str]


def _shapes(text: str) -> tuple[Shape, ...]:
    rows = (line.split(None, 2) for line in text.strip().splitlines())
    return tuple(Shape(kind, begins, re.compile(rest.strip())) for kind, begins, rest in rows)


SHAPES = _shapes(r"""
    GITHUB_TOKEN        ghp_              [A-Za-z0-9]{30,255}
    GITHUB_TOKEN        gho_              [A-Za-z0-9]{30,255}
    GITHUB_TOKEN        ghu_              [A-Za-z0-9]{30,255}
    GITHUB_TOKEN        ghs_              [A-Za-z0-9]{30,255}
    GITHUB_TOKEN        ghr_              [A-Za-z0-9]{30,255}
    GITHUB_TOKEN        github_pat_       [A-Za-z0-9_]{30,255}
    GITLAB_TOKEN        glpat-            [A-Za-z0-9_.-]{19,254}[A-Za-z0-9_-]
    GITLAB_TOKEN        gldt-             [A-Za-z0-9_-]{20,255}
    GITLAB_TOKEN        glrt-             [A-Za-z0-9_-]{20,255}
    GITLAB_TOKEN        glptt-            [A-Za-z0-9_-]{20,255}
    SLACK_TOKEN         xox               [abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{16,500}
    SLACK_TOKEN         xapp-             \d-[A-Za-z0-9-]{20,500}
    SLACK_WEBHOOK       hooks.slack.com/  (?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,200}
    DISCORD_WEBHOOK     discord.com/api/webhooks/     \d+/[A-Za-z0-9_-]{30,200}
    DISCORD_WEBHOOK     discordapp.com/api/webhooks/  \d+/[A-Za-z0-9_-]{30,200}
    STRIPE_KEY          sk_live_          [A-Za-z0-9]{16,255}
    STRIPE_KEY          sk_test_          [A-Za-z0-9]{16,255}
    STRIPE_KEY          rk_live_          [A-Za-z0-9]{16,255}
    STRIPE_KEY          rk_test_          [A-Za-z0-9]{16,255}
    STRIPE_KEY          whsec_            [A-Za-z0-9+/]{24,255}={0,2}
    ANTHROPIC_KEY       sk-ant-           [a-z0-9]+-[A-Za-z0-9_-]{20,300}
    OPENAI_KEY          sk-proj-          [A-Za-z0-9_-]{20,300}
    OPENAI_KEY          sk-svcacct-       [A-Za-z0-9_-]{20,300}
    OPENAI_KEY          sk-admin-         [A-Za-z0-9_-]{20,300}
    OPENROUTER_KEY      sk-or-v1-         [0-9a-f]{32,128}
    OPENAI_KEY          sk-               [A-Za-z0-9]{32,128}(?![A-Za-z0-9_-])
    GOOGLE_KEY          AIza              [A-Za-z0-9_-]{35}
    GOOGLE_KEY          ya29.             [A-Za-z0-9_-]{20,1000}
    GOOGLE_KEY          GOCSPX-           [A-Za-z0-9_-]{20,100}
    HUGGINGFACE_TOKEN   hf_               [A-Za-z0-9]{30,100}
    NPM_TOKEN           npm_              [A-Za-z0-9]{36}
    PYPI_TOKEN          pypi-             [A-Za-z0-9_-]{50,500}
    MAILGUN_KEY         key-              (?<![_-]key-)[0-9a-f]{32}(?![0-9A-Za-z])
    SENDGRID_KEY        SG.               [A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}
    DIGITALOCEAN_TOKEN  dop_v1_           [0-9a-f]{64}
    DIGITALOCEAN_TOKEN  doo_v1_           [0-9a-f]{64}
    DIGITALOCEAN_TOKEN  dor_v1_           [0-9a-f]{64}
    TAVILY_KEY          tvly-             [A-Za-z0-9_-]{20,100}
    GROQ_KEY            gsk_              [A-Za-z0-9]{40,100}
    XAI_KEY             xai-              [A-Za-z0-9]{40,150}
    REPLICATE_TOKEN     r8_               [A-Za-z0-9]{30,60}
    PERPLEXITY_KEY      pplx-             [A-Za-z0-9]{32,80}
    LINEAR_KEY          lin_api_          [A-Za-z0-9]{32,60}
    NOTION_TOKEN        ntn_              [A-Za-z0-9]{32,60}
    SHOPIFY_TOKEN       shpat_            [0-9a-fA-F]{32}
    SHOPIFY_TOKEN       shpss_            [0-9a-fA-F]{32}
    DATABRICKS_TOKEN    dapi              [0-9a-f]{32}(?:-\d)?
    VAULT_TOKEN         hvs.              [A-Za-z0-9_-]{24,300}
    VAULT_TOKEN         hvb.              [A-Za-z0-9_-]{24,300}
    NEW_RELIC_KEY       NRAK-             [A-Z0-9]{27}
    GRAFANA_TOKEN       glsa_             [A-Za-z0-9]{32}_[0-9a-f]{8}
    FIGMA_TOKEN         figd_             [A-Za-z0-9_-]{36,100}
    DOCKER_TOKEN        dckr_pat_         [A-Za-z0-9_-]{24,60}
    SENTRY_TOKEN        sntrys_           [A-Za-z0-9+/=_-]{40,400}
    RUBYGEMS_KEY        rubygems_         [0-9a-f]{48}
    POSTMAN_KEY         PMAK-             [0-9a-f]{24}-[0-9a-f]{34}
    AGE_KEY             AGE-SECRET-KEY-1  [A-Z0-9]{50,60}
    AWS_KEY             AKIA              [A-Z0-9]{16}(?![A-Za-z0-9])
    AWS_KEY             ASIA              [A-Z0-9]{16}(?![A-Za-z0-9])
    JWT                 eyJ               [A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,8000}(?:\.[A-Za-z0-9_-]{0,4000})?
""")

HINTS = tuple(sorted({shape.begins.lower() for shape in SHAPES}))
"""Every text with such a key holds one of these, in any case."""


SHAPELESS = r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}"
"""Tokens of Discord begin with no word of their own. A regular expression of Python's and of Rust's kind."""
_SHAPELESS = re.compile(rf"(?<![A-Za-z0-9_-]){SHAPELESS}(?![A-Za-z0-9_-])")


def shaped(text: str, hints: frozenset[str]) -> Iterator[Finding]:
    """The keys in a text that their shape gives away; they may overlap. `hints` are those that it holds."""
    for shape in (shape for shape in SHAPES if shape.begins.lower() in hints):
        place = text.find(shape.begins)
        while place >= 0:
            end = _end(shape, text, place)
            if end:
                yield Finding(place, end, shape.kind, "shape", 0)
            place = text.find(shape.begins, place + len(shape.begins))
    for match in _SHAPELESS.finditer(text):
        if any(c.isdigit() for c in match[0]):
            yield Finding(match.start(), match.end(), "DISCORD_TOKEN", "shape", 0)


def _end(shape: Shape, text: str, place: int) -> int:
    """Where a key that begins at `place` ends; 0 when there is none. Nearly every key holds a digit, and the others both cases."""
    match = shape.rest.match(text, place + len(shape.begins))
    if not match or (
        place and text[place - 1].isalnum() and shape.begins[0].isalnum() and "." not in shape.begins[1:]
    ):
        return 0
    key = match[0]
    random = any(c.isdigit() for c in key) or (key.lower() != key and key.upper() != key)
    return match.end() if random or shape.begins == "AKIA" else 0
