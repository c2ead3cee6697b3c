"""The picture of the live display is drawn from what a terminal was sent."""

from __future__ import annotations

import live_picture
import pyte


def test_recorded_bytes_become_the_screen_that_they_leave() -> None:
    written = b"one\r\n\x1b[31mtwo\x1b[0m\r\n\x1b[1A\x1b[2K\x1b[1;33mthree\x1b[0m \xe2\x96\x88\r\n"
    found = live_picture.shown(written)
    assert found.plain == "one\nthree █"
    (bold,) = [span for span in found.spans if span.style]
    assert (bold.style, found.plain[bold.start : bold.end]) == ("bold yellow", "three")
    drawn = live_picture.picture(written)
    assert drawn.startswith("<svg")
    assert "three" in drawn.replace("&#160;", " ")
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")


def test_it_waits_until_all_tenants_were_measured_for_a_while() -> None:
    screen = pyte.Screen(live_picture.COLUMNS, live_picture.ROWS)
    course = "▁" * 12
    screen.draw(f"CPU 0  window  1.0  {course}")
    assert live_picture.at_work(screen)
    screen.cursor_position(2, 1)
    screen.draw(f"CPU 1  settling  1.0  {course}")
    assert not live_picture.at_work(screen)
