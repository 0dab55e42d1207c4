// One key per beat. State is two numbers, the slide and how many of its beats are shown; they stand in the address.
const slides = [...document.querySelectorAll("section")];
const beats = slides.map((slide) => [...slide.querySelectorAll(".beat")]);
const body = document.body, where = document.querySelector(".bar output"), list = document.querySelector(".bar select");
let slide = 0, shown = 1, size = 1, begun = 0;

const clamp = (number, least, most) => Math.min(Math.max(number, least), most);

function inSight(slide, beat) { // all of it, or its beginning where it is taller than the screen
  const frame = slide.getBoundingClientRect(), box = beat.getBoundingClientRect(), edge = 12;
  const below = box.bottom + edge - frame.bottom, above = box.top - edge - frame.top;
  slide.scrollTop += below > 0 ? Math.min(below, above) : Math.min(above, 0);
}

function show() {
  slide = clamp(slide, 0, slides.length - 1);
  shown = clamp(shown, 1, beats[slide].length);
  slides.forEach((one, i) => one.classList.toggle("now", i === slide));
  beats[slide].forEach((beat, i) => {
    beat.classList.toggle("before", i < shown - 1);
    beat.classList.toggle("later", i >= shown);
  });
  told();
  list.value = slide;
  history.replaceState(null, "", `#${slide + 1}.${shown}`);
  if (shown === 1) slides[slide].scrollTop = 0;
  else inSight(slides[slide], beats[slide][shown - 1]);
}

function told() { // where we are; with a clock, the minutes spent and the minute at which this slide should end
  const minutes = Math.floor((Date.now() - begun) / 60000), end = slides[slide].dataset.end;
  const clock = begun ? `minute ${minutes}${end ? `, this slide until ${end}` : ""} · ` : "";
  where.textContent = `${clock}slide ${slide + 1} of ${slides.length}, beat ${shown} of ${beats[slide].length}`;
  where.classList.toggle("late", begun > 0 && end !== undefined && minutes >= +end);
}

function move(forward) {
  if (forward && shown < beats[slide].length) shown += 1;
  else if (forward && slide < slides.length - 1) [slide, shown] = [slide + 1, 1];
  else if (!forward && shown > 1) shown -= 1;
  else if (!forward && slide > 0) [slide, shown] = [slide - 1, Infinity];
  show();
}

const to = (number, whole) => () => { slide = number(); shown = whole ? Infinity : 1; show(); };
const larger = (factor) => () => { size = clamp(size * factor, 0.5, 3); body.style.setProperty("--size", size); show(); };
const toggled = (name) => () => { body.classList.toggle(name); show(); };
const keys = {
  "ArrowRight": () => move(true), " ": () => move(true), "PageDown": () => move(true), "Enter": () => move(true),
  "ArrowLeft": () => move(false), "PageUp": () => move(false), "Backspace": () => move(false),
  "ArrowDown": () => slides[slide].scrollBy(0, 160), "ArrowUp": () => slides[slide].scrollBy(0, -160),
  "Home": to(() => 0), "End": to(() => slides.length - 1), "n": to(() => slide + 1), "p": to(() => slide - 1),
  "a": to(() => slide, true), "+": larger(1.1), "=": larger(1.1), "-": larger(1 / 1.1),
  "b": toggled("dark"), ".": toggled("dark"), "c": toggled("code-shown"), "s": toggled("notes-shown"),
  "t": () => { begun = begun ? 0 : Date.now(); told(); },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(".hl-live, select") || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
list.addEventListener("change", () => { slide = +list.value; shown = 1; list.blur(); show(); });
const asked = () => { [slide, shown] = (location.hash.slice(1) || "1.1").split(".").map(Number); slide -= 1; show(); };
addEventListener("hashchange", asked);
setInterval(() => begun && told(), 5000);
body.classList.add("live");
asked();
