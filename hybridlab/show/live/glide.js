// Glide: when another picture comes, each box moves from its old place to its new one; a box that is new grows there.
//
//   const glide = gliding(repaint, kinds)      repaint(): paint all boxes, where `place.at` has them
//   const were = glide.places(picture, data, place)      before the other picture is laid out
//   glide.begin(were, picture, data, place)    after it; `place.at` says where each box is until the glide is over
//   glide.end()                                at once

const GLIDE = 500, GLIDERS = 6000; // milliseconds; boxes: with more, none is seen on its own

// A box comes from that of the same kind; where there was none, halves of a backward from the whole, and vice versa.
function gliding(repaint, kinds) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let timer = 0, moving = null;

  const named = (picture, data, i, kind) => {
    const lane = picture.lanes[data.lane[i]];
    return [lane.timeline, lane.rank, kind, data.stage[i], data.microbatch[i], data.replica[i]].join("/");
  };
  const namesOf = (picture, data, i) => {
    const [kind] = picture.kinds[data.kind[i]], { tone } = kinds[kind] ?? {};
    return [kind, tone && (tone === "forward" ? tone : "other")].map((one) => named(picture, data, i, one));
  };
  const acts = (data, i) => data.kind[i] >= 0 && !data.isMessage[data.look[i]];

  function places(picture, data, place) {
    if (calm.matches || data.count > GLIDERS) return null;
    const found = new Map();
    for (let i = 0; i < data.count; i++)
      if (acts(data, i)) for (const name of namesOf(picture, data, i)) found.set(name, frame(data, place, i));
    return found;
  }

  function begin(were, picture, data, place) {
    end();
    if (!were || data.count > GLIDERS) return;
    const starts = new Array(data.count), ends = Array.from({ length: data.count }, (_, i) => rests(data, place, i));
    for (let i = 0; i < data.count; i++) {
      if (!acts(data, i)) continue;
      const [x, y, w, h] = ends[i], known = namesOf(picture, data, i).map((name) => were.get(name)).find(Boolean);
      starts[i] = known ?? [x + w / 2, y, 0, h];
    }
    const began = performance.now();
    moving = place;
    const move = (now) => {
      const share = within(0, (now - began) / GLIDE, 1), eased = share * share * (3 - 2 * share);
      if (share >= 1) { end(); return; }
      const between = ([x, y, w, h], [x2, y2, w2, h2]) =>
        [x + (x2 - x) * eased, y + (y2 - y) * eased, w + (w2 - w) * eased, h + (h2 - h) * eased];
      place.at = (i) => (starts[i] ? between(starts[i], ends[i]) : ends[i]);
      repaint();
      timer = requestAnimationFrame(move);
    };
    move(began);
  }

  function end() {
    cancelAnimationFrame(timer);
    if (!moving) return;
    moving.at = null;
    moving = null;
    repaint();
  }

  return { places, begin, end, moving: () => moving !== null };
}
