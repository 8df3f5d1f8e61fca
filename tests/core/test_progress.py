import io

import pytest

from logforge.core.progress import Pace, bar, clock, drawn, short


def test_speed_counts_from_what_was_done_already():
    pace = Pace()
    assert pace.per_second(900, 1000, 10.0) == 0, "from the cache, in no time"
    assert pace.per_second(920, 1000, 12.0) == 10
    assert pace.per_second(960, 1000, 14.0) == 15


@pytest.mark.parametrize("done", [5, 300], ids=["other total", "other total, more done"])
def test_other_work_begins_anew(done):
    pace = Pace()
    pace.per_second(0, 100, 0.0)
    pace.per_second(100, 100, 1.0)
    assert pace.per_second(done, 500, 2.0) == 0
    assert pace.per_second(done + 8, 500, 4.0) == 4


def test_less_done_than_before_is_other_work():
    pace = Pace()
    pace.per_second(0, 100, 0.0)
    pace.per_second(100, 100, 1.0)
    assert pace.per_second(0, 100, 5.0) == 0
    assert pace.per_second(10, 100, 6.0) == 10


def test_a_bar_shows_share_speed_and_time_left():
    assert drawn(500, 1000, 58.0).endswith("50%  58/s  9 s left")
    assert drawn(500, 1000, 0.0).endswith(" 50%")
    assert "100%" in drawn(0, 0, 0.0)
    assert drawn(500, 1000, 1.0).count("█") == 12


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.417, "0.417"), (58, "58"), (999, "999"), (8_800, "8.8k"), (45_100_000, "45.1M"), (3e9, "3G")],
)
def test_short_numbers(number, text):
    assert short(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (42.4, "42 s"), (187, "3:07"), (7509, "2:05:09")])
def test_spans_of_time(seconds, text):
    assert clock(seconds) == text


def test_a_bar_is_drawn_on_a_terminal_alone(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    with bar("encode") as tick:
        tick(1, 2, "minilm")
    assert screen.getvalue() == ""
    monkeypatch.setattr(screen, "isatty", lambda: True)
    with bar("encode") as tick:
        tick(0, 2, "minilm")
        tick(2, 2, "a\x1b[31m")
    assert "encode ████████████████████████ 100%" in screen.getvalue()
    assert "a·[31m" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")
