// Shows: the live pictures that need no kernel, by the names that their data have.

const SHOWS = { box: renderBox, moving: renderMoving, linked: renderLinked, calculator: renderCalculator };
