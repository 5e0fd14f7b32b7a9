// The hidden picture: what was looked at, the gain map or the imagined scene over the rest, and the places one may click.

import { element, nats } from "./elements.js";

export class Board {
  /** `colours` is the scale of a gain map, dark to bright; `look` is told which place was clicked, and is null where none may be. */
  constructor(grid, { colours, look = null, describe }) {
    Object.assign(this, { grid, colours, describe });
    this.under = element("canvas", { className: "under", width: grid.width, height: grid.height });
    this.pixels = element("canvas", { width: grid.width, height: grid.height });
    this.rings = element("div");
    this.cover = element("p", { className: "covered", hidden: true });
    this.element = element("div", { className: "board" }, this.under, this.pixels, this.rings, this.cover);
    this.element.style.setProperty("--ratio", grid.width / grid.height);
    this.words = element("span");
    this.top = element("span");
    this.scale = element("span", { className: "scale", hidden: true }, "0", this.bar(), this.top);
    this.caption = element("p", { className: "caption" }, this.words, this.scale);
    if (look) this.element.append(this.makeCells(look));
    else {
      this.element.setAttribute("role", "img");
    }
  }

  bar() {
    const canvas = element("canvas", { width: this.colours.length, height: 1 });
    const context = canvas.getContext("2d");
    this.colours.forEach((colour, i) => {
      context.fillStyle = colour;
      context.fillRect(i, 0, 1, 1);
    });
    return canvas;
  }

  /** One button a place, reached by one stop of the Tab key and then by arrows. */
  makeCells(look) {
    const { grid } = this;
    this.cells = Array.from({ length: grid.count }, (_, place) => {
      const cell = element("button", { type: "button", tabIndex: -1, attributes: { role: "gridcell" } });
      this.put(cell, grid.cell(place));
      cell.addEventListener("click", () => cell.getAttribute("aria-disabled") !== "true" && look(place));
      cell.addEventListener("focus", () => this.say(place));
      cell.addEventListener("pointerenter", () => this.say(place));
      return cell;
    });
    this.current = Math.floor(grid.rows / 2) * grid.cols + Math.floor(grid.cols / 2);
    this.cells[this.current].tabIndex = 0;
    const rows = Array.from({ length: grid.rows }, (_, row) =>
      element("div", { attributes: { role: "row" } }, ...this.cells.slice(row * grid.cols, (row + 1) * grid.cols)),
    );
    const cells = element("div", { className: "cells", attributes: { role: "grid", "aria-label": "Places to look at" } }, ...rows);
    cells.addEventListener("keydown", (event) => this.move(event));
    cells.addEventListener("pointerleave", () => this.say(null));
    return cells;
  }

  move(event) {
    const { rows, cols } = this.grid;
    const [row, col] = [Math.floor(this.current / cols), this.current % cols];
    const to = {
      ArrowUp: [row - 1, col], ArrowDown: [row + 1, col], ArrowLeft: [row, col - 1], ArrowRight: [row, col + 1],
      Home: [row, 0], End: [row, cols - 1], PageUp: [0, col], PageDown: [rows - 1, col],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const [down, across] = [Math.min(Math.max(to[0], 0), rows - 1), Math.min(Math.max(to[1], 0), cols - 1)];
    this.cells[this.current].tabIndex = -1;
    this.current = down * cols + across;
    this.cells[this.current].tabIndex = 0;
    this.cells[this.current].focus();
  }

  /** Lay an element over pixels of the scene: top, left, bottom, right. */
  put(made, [top, left, bottom, right]) {
    const { height, width } = this.grid;
    made.style.top = `${(100 * top) / height}%`;
    made.style.left = `${(100 * left) / width}%`;
    made.style.height = `${(100 * (bottom - top)) / height}%`;
    made.style.width = `${(100 * (right - left)) / width}%`;
  }

  say(place) {
    this.words.textContent = place === null ? this.rest : this.describe(place);
  }

  /**
   * Draw an episode: `plan` is the next choice or null, `overlay` what lies over the hidden picture, `imagined` a scene or null,
   * `revealed` shows all, `open` lets places be clicked.
   */
  draw({ episode, plan, overlay, imagined, revealed, open, rest = "" }) {
    const { state, scene } = episode;
    const places = state.looks.map((look) => look.place);
    paint(this.pixels, this.grid, { scene, mask: revealed ? null : this.grid.seen(places) });
    const gain = overlay === "gain" && !revealed ? (plan?.gain ?? null) : null;
    this.under.getContext("2d").clearRect(0, 0, this.grid.width, this.grid.height);
    const most = gain ? this.heat(gain, state.allowed) : 0;
    if (!gain && imagined && overlay === "imagined") paint(this.under, this.grid, { scene: imagined, mask: null });
    this.scale.hidden = !gain;
    this.top.textContent = `${nats(most)} nats`;
    this.rest = rest;
    this.say(null);
    this.outline(places, { next: open && !revealed && overlay !== "nothing" ? plan?.place : undefined, revealed });
    this.cells?.forEach((cell, place) => {
      cell.setAttribute("aria-disabled", String(!open || !state.allowed[place]));
      cell.setAttribute("aria-label", this.describe(place));
    });
    if (!this.cells) this.element.setAttribute("aria-label", this.summary(places, revealed));
  }

  summary(places, revealed) {
    const where = places.map((place) => this.grid.location(place).join(" ")).join(", ");
    const seen = places.length ? `Looks at row and column ${where}.` : "Nothing has been looked at.";
    return `${revealed ? "The picture, revealed." : "The hidden picture."} ${seen}`;
  }

  /** Colour each place by its share of the largest gain; those that were looked at have none. */
  heat(gain, allowed) {
    let most = 0;
    gain.forEach((value, place) => allowed[place] && (most = Math.max(most, value)));
    const context = this.under.getContext("2d");
    gain.forEach((value, place) => {
      if (!allowed[place]) return;
      const share = most > 0 ? Math.max(value, 0) / most : 0;
      const [top, left, bottom, right] = this.grid.cell(place).map(Math.round);
      context.fillStyle = this.colours[Math.round(share * (this.colours.length - 1))];
      context.fillRect(left, top, right - left, bottom - top);
    });
    return most;
  }

  outline(places, { next, revealed }) {
    const side = this.grid.glimpseSize;
    const ring = (place, kind, ...inside) => {
      const made = element("div", { className: `ring ${kind}` }, ...inside);
      const [top, left] = this.grid.location(place);
      this.put(made, [top, left, top + side, left + side]);
      return made;
    };
    const rings = places.map((place, i) =>
      ring(place, !revealed && i === places.length - 1 ? "last" : "past", element("b", { textContent: i + 1 })),
    );
    if (next !== undefined) rings.push(ring(next, "next"));
    this.rings.replaceChildren(...rings);
  }

  /** Hide the board behind words; null shows it. */
  coverWith(words) {
    this.cover.hidden = words === null;
    this.cover.textContent = words ?? "";
    for (const canvas of [this.under, this.pixels]) canvas.hidden = words !== null;
    this.rings.hidden = words !== null;
  }
}

/** Draw those pixels of a scene that a mask lets through; all without one. */
export function paint(canvas, grid, { scene, mask, below = null }) {
  const { height, width, channels } = grid;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let i = 0; i < height * width; i++) {
    const shown = !mask || mask[i];
    const from = shown ? scene : below;
    if (!from) continue;
    for (let channel = 0; channel < 3; channel++) {
      image.data[4 * i + channel] = from[(channels === 1 ? 0 : channel) * height * width + i];
    }
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}
