"""Made-up personal data in the places where logs of customer service hold it, and harmless texts that look alike."""

from __future__ import annotations

import random
from typing import NamedTuple

LOOK_ALIKES = [
    "git clone git@github.com:team/repo.git", "scp a.txt bob@build.example.com:/tmp", "pip install pkg@1.2.3", "ssh root@localhost",
    "@property\ndef x(self): ...", "order 6086499569 was shipped", "#W2378156 and item 9408160950", "2024-05-15 10:00:00",
    "2024-05-15T10:00:00.123456Z", "1715768400123", "1715768400", "3.14159265358979", "0.678910 0.123456", "978-3-16-148410-0",
    "doi:10.1016/j.cell.2020.01.001", "4111111111111112", "1234 5678 9012 3456", "DE89370400440532013001", "SHA256 9f86d081884c7d65",
    "a[1::2] + b[::3]", "std::vector<int>", "12:30:45.123", "aa:bb:cc:dd:ee:ff", "127.0.0.1:8080", "0.0.0.0", "255.255.255.0", "::1",
    "v1.2.3.4", "numpy==1.2.3.4", "version: 10.0.19041.1", "Chrome/120.0.0.0 Safari/537.36", "section 1.2.3.4.5", "123-456-78",
    "000-12-3456", "666-12-3456", "1,234,567.89", "$1234567.89", "12345-6789", "[12, 345, 678, 910]", "10 20 30 40 50 60",
    "7f3a2b1c-1234-5678-9abc-def012345678", "line 1234567, column 12", "2024/05/15 12:30", "15.05.2024 12:30", "100-200-300-400",
    "+1 and -1", "HAT123 at 10:30", "size=1048576", "0x7fff5fbff8c0", "user@host", "<EMAIL> and <PHONE>",
]  # fmt: skip


class Sample(NamedTuple):
    """A text with something of a person that must not be left in it."""

    kind: str
    value: str
    text: str


def _card(r: random.Random) -> str:
    begins, length = r.choice([("4", 16), ("53", 16), ("34", 15), ("6011", 16)])
    body = begins + "".join(r.choices("0123456789", k=length - len(begins) - 1))
    total = sum(sum(divmod(int(d) * (2 - i % 2), 10)) for i, d in enumerate(reversed(body)))
    digits = body + str(-total % 10)
    grouped = (
        [digits[i : i + 4] for i in range(0, 16, 4)]
        if length == 16
        else [digits[:4], digits[4:10], digits[10:]]
    )
    return r.choice(["", " ", "-"]).join(grouped)


def _iban(r: random.Random) -> str:
    country, length = r.choice([("DE", 22), ("FR", 27), ("NL", 18), ("ES", 24)])
    bban = "".join(r.choices("0123456789", k=length - 4))
    number = int("".join(str(int(c, 36)) for c in bban + country + "00"))
    text = f"{country}{98 - number % 97:02}{bban}"
    return r.choice([text, " ".join(text[i : i + 4] for i in range(0, length, 4))])


def _email(r: random.Random) -> str:
    names = "ann bob.lee chen_wei j.o'neil müller yusuf+news n42".split()
    return f"{r.choice(names)}{r.randrange(99)}@{r.choice(['example.org', 'mail.example.co.uk', 'firm-gmbh.de', 'GMAIL.COM'])}"


def _phone(r: random.Random) -> str:
    d = "".join(r.choices("23456789", k=12))
    return r.choice(
        [
            f"(415) {d[:3]}-{d[3:7]}",
            f"212-{d[:3]}-{d[3:7]}",
            f"+1 415 {d[:3]} {d[3:7]}",
            f"+1-646-{d[:3]}-{d[3:7]}",
            f"+1415{d[:7]}",
            f"+44 20 7946 0{d[:3]}",
            "020 7946 0958",
            f"+49 30 90{d[:4]}",
            "030 901820",
            f"+33 1 42 68 {d[:2]} {d[2:4]}",
            "01 42 68 53 00",
            f"0171 {d[:7]}",
            f"312.{d[:3]}.{d[3:7]}",
        ]
    )


def _ip(r: random.Random) -> str:
    octets = ".".join(str(r.randint(11, 220)) for _ in range(4))
    groups = ":".join(f"{r.randrange(1, 65536):x}" for _ in range(6))
    return r.choice([octets, f"2001:db8:{groups}", f"fe80::{r.randrange(4096, 65536):x}:1"])


def _ssn(r: random.Random) -> str:
    return f"{r.randint(100, 665)}-{r.randint(10, 99)}-{r.randint(1000, 9999)}"


_MAKERS = {"card": _card, "email": _email, "iban": _iban, "ip": _ip, "phone": _phone, "ssn": _ssn}
_CARRIERS = (
    "Sure, it is {}.", "{}", '{{"contact": "{}", "ok": true}}', "name: Ann\nvalue: {}\nzip: 94105\n", "({})", "please use {} from now on",
    "| Ann | {} | open |", "{}, or nothing", "<td>{}</td>", "'{}'", "first line\n{}\nlast line",
)  # fmt: skip


def corpus(seed: int = 0, rounds: int = 8) -> list[Sample]:
    """Every kind in every place, some times over."""
    r = random.Random(seed)
    made = [
        (kind, make(r), place) for _ in range(rounds) for kind, make in _MAKERS.items() for place in _CARRIERS
    ]
    return [Sample(kind, value, place.format(value)) for kind, value, place in made]
