// Probabilities as bars, the entropy as a line, and the looks as a strip of film.

import { paint } from "./board.js";
import { drawn, element, largestOf, nats, percent } from "./elements.js";

/** Bars of a distribution; with `most`, the likeliest few of it, in order. */
export class Bars {
  constructor(answers, { most = answers.length } = {}) {
    Object.assign(this, { answers, most: Math.min(most, answers.length) });
    this.rows = Array.from({ length: this.most }, () => {
      const row = { label: span("label"), fill: element("div", { className: "fill" }), share: span("share") };
      row.element = element("li", {}, row.label, element("div", { className: "track" }, row.fill), row.share);
      return row;
    });
    this.element = element("ul", { className: "bars", attributes: { "aria-label": "Probabilities" } }, ...this.rows.map((row) => row.element));
  }

  draw(probabilities, { known = true } = {}) {
    const best = largestOf(probabilities);
    let order = probabilities.map((_, i) => i);
    if (this.most < probabilities.length) order.sort((a, b) => probabilities[b] - probabilities[a]);
    order = order.slice(0, this.most);
    this.rows.forEach((row, i) => {
      const of = order[i];
      row.label.textContent = row.label.title = this.answers[of];
      row.fill.style.width = `${100 * probabilities[of]}%`;
      row.share.textContent = percent(probabilities[of]);
      row.element.classList.toggle("best", known && of === best);
    });
  }
}

/** Two amounts beside each other, such as what two looks were worth. */
export function amounts(rows) {
  const most = Math.max(...rows.map(({ value }) => Math.abs(value)), 1e-9);
  const bars = rows.map(({ label, value, kind }) => {
    const fill = element("div", { className: "fill" });
    fill.style.width = `${(100 * Math.max(value, 0)) / most}%`;
    return element(
      "li", { className: kind }, span("label", label), element("div", { className: "track" }, fill), span("share", `${nats(value)} nats`),
    );
  });
  return element("ul", { className: "bars" }, ...bars);
}

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [420, 132, 30, 20, 8];

/** The entropy look by look, of one player or of several: { who, name, entropies, elsewhere, budget }. */
export function entropyChart(players, most) {
  const budget = Math.max(...players.map((player) => player.budget));
  const x = (look) => LEFT + (look / budget) * (WIDTH - LEFT - 8);
  const y = (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
  const chart = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": inWords(players) });
  chart.append(drawn("path", { class: "axis", fill: "none", d: `M${LEFT} ${TOP}V${y(0)}H${WIDTH - 8}` }));
  for (const value of [0, most]) {
    chart.append(drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value ? value.toFixed(1) : "0"));
  }
  for (let look = 0; look <= budget; look += Math.ceil(budget / 10)) {
    chart.append(drawn("text", { x: x(look), y: HEIGHT - 4, "text-anchor": "middle" }, look === 0 ? "start" : String(look)));
  }
  for (const { who, entropies, elsewhere } of players) {
    const line = entropies.map((value, look) => `${x(look)},${y(value)}`).join(" ");
    const group = drawn("g", { "data-who": who }, drawn("polyline", { class: "of", points: line }));
    entropies.forEach((value, look) => {
      const kind = elsewhere[look - 1] ? "dot elsewhere" : "dot";
      group.append(drawn("circle", { class: kind, cx: x(look), cy: y(value), r: 3.6 }));
    });
    chart.append(group);
  }
  return chart;
}

function inWords(players) {
  return players
    .map(({ name, entropies }) => `${name}: entropy ${entropies.map((value) => value.toFixed(2)).join(", ")} nats.`)
    .join(" ");
}

/** One picture of the strip: what was seen after a look, with what was imagined around it where there is such. */
export function frame(grid, { scene, places, imagined, title, note }) {
  const canvas = element("canvas", { width: grid.width, height: grid.height, attributes: { "aria-hidden": "true" } });
  canvas.style.setProperty("--ratio", grid.width / grid.height);
  paint(canvas, grid, { scene, mask: grid.seen(places), below: imagined });
  return element("li", {}, canvas, element("strong", { textContent: title, title }), span("note", note));
}

function span(className, textContent = "") {
  return element("span", { className, textContent });
}
