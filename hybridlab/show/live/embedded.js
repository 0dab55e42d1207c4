// Live pictures inside a page or a slide come to life when they are first visible. Until then, when printed,
// and without JavaScript, the stored picture is there.

const sleeping = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    sleeping.unobserve(target);
    const data = JSON.parse(target.querySelector("script").textContent);
    (SHOWS[data.show] ?? renderGrid)(target, data);
  }
});
for (const one of document.querySelectorAll(".hl-live")) sleeping.observe(one);
