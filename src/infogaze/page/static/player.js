// One of those who look: an episode with its board, its bars and its words.

import { Bars } from "./belief.js";
import { Board } from "./board.js";
import { element, largestOf, nats, percent } from "./elements.js";

export class Player {
  /** `who` is ours, paper, random or you; `clicked` is told a place, null where none may be chosen. */
  constructor(episode, { who, title, note, colours, clicked = null, compact = false }) {
    Object.assign(this, { episode, who, title, compact, plan: null, imagined: [] });
    this.board = new Board(episode.grid, { colours, look: clicked, describe: (place) => this.describe(place) });
    this.bars = new Bars(episode.answers, compact ? { most: 4 } : {});
    this.verdict = element("p", { className: "verdict" });
    const sight = element("div", { className: "sight" }, this.board.element, this.board.caption);
    const said = element("div", { className: "said" }, ...(compact ? [this.bars.element, this.verdict] : []));
    const heading = element("header", {}, element("h2", { textContent: title }), element("p", { textContent: note }));
    this.element = element("section", { className: "player", dataset: { who }, attributes: { "aria-label": title } }, heading, sight, said);
  }

  /** Find out where it would look next, and what it imagines. */
  async think({ imagines }) {
    const { episode } = this;
    const { state } = episode;
    const looks = state.looks.length;
    if (imagines && episode.network.imagines) this.imagined[looks] ??= (await episode.network.imagine(state.belief)).scene;
    const plan = episode.done || episode.state !== state ? null : await episode.plan();
    if (episode.state === state) this.plan = plan; // else it is of a look ago
  }

  async look(place = null) {
    await this.episode.look(place);
    this.plan = null;
  }

  draw({ overlay, revealed, open, secret = false }) {
    const { episode } = this;
    const looks = episode.state.looks.length;
    const plan = episode.done ? null : this.plan;
    const rest = this.rest(plan, { overlay, revealed, secret });
    this.board.draw({ episode, plan: secret ? null : plan, overlay, imagined: this.imagined[looks] ?? null, revealed, open: open && !episode.done, rest });
    this.bars.draw(episode.state.answers, { known: looks > 0 });
    this.bars.element.hidden = secret;
    this.verdict.textContent = episode.done && !secret ? this.outcome() : "";
  }

  rest(plan, { overlay, revealed, secret }) {
    const { network, state, grid } = this.episode;
    if (revealed) return `${percent(this.share())} of the picture was looked at.`;
    if (secret) return "";
    if (overlay === "imagined" && !network.imagines) return "This model imagines no pixels.";
    if (plan && !state.looks.length) return "The first look is at random.";
    if (plan && !plan.gain) return `Next: row ${grid.location(plan.place).join(", column ")}, at random.`;
    return plan ? `Next: row ${grid.location(plan.place).join(", column ")}.` : "";
  }

  /** A place in words. */
  describe(place) {
    const { grid, state } = this.episode;
    const [row, col] = grid.location(place);
    const where = `Row ${row}, column ${col}`;
    if (!state.allowed[place]) return `${where}: looked at.`;
    const gain = this.plan?.gain;
    const next = this.plan?.place === place ? " The model looks here next." : "";
    return `${where}${gain ? `: expected gain ${nats(gain[place])} nats` : ""}.${next}`;
  }

  share() {
    const { grid, state } = this.episode;
    const seen = grid.seen(state.looks.map((look) => look.place));
    return seen.reduce((total, pixel) => total + pixel, 0) / seen.length;
  }

  get best() {
    return largestOf(this.episode.state.answers);
  }

  get answer() {
    return this.episode.answers[this.best];
  }

  get certainty() {
    return this.episode.state.answers[this.best];
  }

  /** How it ended, or how it stands; and a word of warning where the answer means little. */
  outcome() {
    const unusual = this.episode.done && this.episode.unusual;
    return `${this.standing()}${unusual ? " This picture is unlike those it was trained on, so its answer means little." : ""}`;
  }

  standing() {
    const { episode, answer, certainty } = this;
    const looks = episode.state.looks.length;
    const said = `${answer}, ${percent(certainty)}`;
    const of = `${looks} of ${episode.budget} looks`;
    if (episode.endedBy === "rule") return `Stopped after ${of}: ${said}. ${episode.why}`;
    if (episode.endedBy === "no location left") return `Every place was looked at: ${said}.`;
    if (episode.endedBy === "budget") return `All ${looks} looks are taken: ${said}, from ${percent(this.share())} of the picture.`;
    return `Look ${of}: ${said}.`;
  }
}
