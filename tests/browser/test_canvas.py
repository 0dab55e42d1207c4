"""The canvas, read back: every span is one box at its place and in its colour, and every bubble is grey.

A row of pixels through each lane is cut into runs of one colour. What should stand there is computed here from the
spans of the timeline; from the page only the position of the axis and of the lanes is taken.
"""

import itertools
import json

import pytest

import hybridlab as hl
from hybridlab.show.live.module import module, stylesheet
from hybridlab.show.paper.style import STYLE, look
from hybridlab.show.timelines.picture import picture, to_json
from hybridlab.show.timelines.spans import RECEIVE_Y, SEND_Y

PAGE = """<!doctype html><meta charset="utf-8"><style>{style}</style>
<body style="background: {paper}; margin: 0"><div id="here"></div>
<script type="application/json" id="data">{data}</script>
<script type="module">{module}
const {{ style, picture }} = JSON.parse(document.getElementById("data").textContent);
const shown = view(document.getElementById("here"), style);
shown.show(picture);
window.lanes = () => {{
  const em = parseFloat(getComputedStyle(shown.root).fontSize);
  const place = layout(picture, shown.canvas.clientWidth, 0, picture.length, em, ROOM.plenty);
  return {{ left: place.x(0), right: place.x(picture.length), tall: place.lane,
    tops: picture.lanes.map((lane, i) => lane.top * place.lane + place.lift[i]) }};
}};
window.row = ([y, from, to]) => {{
  const {{ canvas }} = shown, ratio = canvas.width / canvas.clientWidth;
  const [x, top, wide] = [from, y, to - from].map((one) => Math.round(one * ratio));
  return Array.from(canvas.getContext("2d").getImageData(x, top, wide, 1).data);
}};
</script>"""
PAPER = {"light": "#ffffff", "dark": "#111111"}
FINE = 3  # pixels of the canvas for one of the page, so that the gap between two boxes has pixels of its own


def timeline(name, ranks=3, microbatches=4, latency=0.0, **more):
    schedule = hl.schedule(name, ranks=ranks, microbatches=microbatches, **more)
    costs = hl.Costs(F=1, I=1, W=1.5, latency=latency)
    return hl.simulate(hl.lower(schedule) if latency else schedule, costs)


def shown(browser, drawn, theme):
    data = json.dumps({"style": STYLE}, separators=(",", ":"))[:-1] + f',"picture":{to_json(drawn)}}}'
    page = browser.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=FINE)
    page.set_content(PAGE.format(style=stylesheet(), paper=PAPER[theme], data=data, module=module()))
    page.wait_for_selector("canvas[data-painted]")
    return page


def expected(one, rank):
    """What should stand on a rank's lane, from 0 to the end: (kind, begin, end), idle time included."""
    spans = sorted((s for s in one.spans if s.rank == rank and s.lane == "compute"), key=lambda s: s.begin)
    found, free = [], 0.0
    for span in spans:
        if span.begin > free:
            found.append(("bubble", free, span.begin))
        found.append((span.action.kind, span.begin, span.end))
        free = span.end
    return found + ([("bubble", free, one.length)] if free < one.length else [])


def rgb(colour):
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def near(colour, pixel):
    return sum((a - b) ** 2 for a, b in zip(rgb(colour), pixel))


def row(page, theme, y, begin, end):
    """The colours along a row of pixels as one sees them: what is transparent shows the paper."""
    raw = page.evaluate("(where) => row(where)", [y, begin, end])
    paper, pixels = rgb(PAPER[theme]), []
    for at in range(0, len(raw), 4):
        share = raw[at + 3] / 255
        pixels.append([share * raw[at + i] + (1 - share) * paper[i] for i in range(3)])
    return pixels


def runs(page, theme, y, left, right):
    """The runs of one colour along a row between two places: (kind, begin, end), the gaps between boxes left out.

    B and I have one colour and are both called B; W is dark or striped.
    """
    inks = {kind: [look(kind).fill] for kind in "FB"} | {"W": [look("W").fill, look("W").hatch]}
    inks |= {"bubble": [STYLE[theme]["bubble"]], "gap": [STYLE[theme]["edge"], PAPER[theme]]}

    def kind_of(pixel):
        return min(inks, key=lambda kind: min(near(colour, pixel) for colour in inks[kind]))

    cut, at = [], left
    for kind, group in itertools.groupby(row(page, theme, y, left, right), key=kind_of):
        wide = len(list(group)) / FINE
        if kind != "gap" and wide > 3:  # shades between two colours are no box
            cut.append((kind, at, at + wide))
        at += wide
    return cut


def differences(page, one, theme):
    """What of the picture is not as the timeline has it, lane by lane."""
    lanes, wrong = page.evaluate("lanes()"), []
    to_x = (lanes["right"] - lanes["left"]) / one.length
    for rank, top in enumerate(lanes["tops"]):
        seen = runs(page, theme, top + 0.14 * lanes["tall"], lanes["left"], lanes["right"])
        wanted = [("B" if kind == "I" else kind, lanes["left"] + begin * to_x, lanes["left"] + end * to_x)
                  for kind, begin, end in expected(one, rank)]  # fmt: skip
        if len(seen) != len(wanted):
            wrong.append(f"rank {rank}: {len(seen)} boxes instead of {len(wanted)}")
        wrong += [
            f"rank {rank}: {a} instead of {b}"
            for a, b in zip(seen, wanted)
            if a[0] != b[0] or abs(a[1] - b[1]) > 2.5 or abs(a[2] - b[2]) > 2.5
        ]
    return wrong + _messages_at_fault(page, one, theme, lanes, to_x)


def _messages_at_fault(page, one, theme, lanes, to_x):
    """The message bars under the lanes: green in the middle of each."""
    wrong = []
    for span in one.spans:
        if span.lane in ("send", "receive") and span.end > span.begin:
            top, bottom = SEND_Y if span.lane == "send" else RECEIVE_Y
            y = lanes["tops"][span.rank] + (top + bottom) / 2 * lanes["tall"]
            x = lanes["left"] + (span.begin + span.end) / 2 * to_x
            (pixel,) = row(page, theme, y, x, x + 1 / FINE)
            if near(look("message").fill, pixel) > 30:
                wrong.append(f"{span.action} on rank {span.rank}: {pixel}")
    return wrong


CASES = [timeline("gpipe"), timeline("1f1b", 4, 6), timeline("zb_h1"), timeline("1f1b", latency=0.5)]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.schedule.name}-{len(one.lane)}")
def test_one_box_per_span_at_its_place_bubbles_included(browser, one, theme):
    page = shown(browser, picture(one), theme)
    assert differences(page, one, theme) == []
    page.close()


def test_a_wrong_picture_is_noticed(browser):
    """Another order, a longer box, and a missing bubble."""
    page = shown(browser, picture(timeline("gpipe")), "light")
    assert differences(page, timeline("1f1b"), "light")
    page.close()
    slower = hl.simulate(hl.schedule("gpipe", ranks=3, microbatches=4), hl.Costs(F=1.1, I=1, W=1.5))
    page = shown(browser, picture(slower), "light")
    assert differences(page, timeline("gpipe"), "light")
    page.evaluate("() => { const c = document.querySelector('canvas'); const { tops, left } = lanes();"
                  " c.getContext('2d').clearRect(left, tops[1], 30, 30); }")  # fmt: skip
    assert any("rank 1" in wrong for wrong in differences(page, slower, "light"))
    page.close()
