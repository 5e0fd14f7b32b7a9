// The blind loop: ask where to look, look, tell what was seen; as infogaze/gaze/episode.py has it, for one scene.
//
// The scene is here because the page shows what was looked at. The networks get glimpses and nothing else.

import { entropy, reasonToStop } from "./stopping.js";
import { normal, sceneSeed, uniform } from "./noise.js";

/** The place with the largest value among those allowed; of several the first. */
export function best(values, allowed) {
  let found = -1;
  for (let place = 0; place < values.length; place++) {
    if (allowed[place] && (found < 0 || values[place] > values[found])) found = place;
  }
  return found;
}

export class Episode {
  /**
   * `network` sees and decides; `scene` holds the pixels; `chooser` is "own" or "random"; `question` groups classes or is null;
   * `stop` is a rule or null; `first` is the first place, at random if null.
   */
  constructor({ network, scene, seed, chooser = "own", question = null, stop = null, first = null, budget = null }) {
    Object.assign(this, { network, scene, chooser, question, stop, first });
    this.grid = network.grid;
    const most = network.contract.max_looks ?? Infinity;
    this.budget = Math.min(budget ?? network.contract.num_looks, this.grid.count, most);
    this.answers = question ? question.answers.map((answer) => answer.name) : network.contract.classes;
    this.seed = sceneSeed(seed);
    this.states = [this.beginning()];
    this.endedBy = null; // "rule", "no location left" or "budget"
    this.why = "";
    this.planned = null;
  }

  beginning() {
    const { contract, grid } = this.network;
    return {
      belief: this.network.start(),
      answers: new Array(this.answers.length).fill(1 / this.answers.length),
      probabilities: new Array(contract.classes.length).fill(1 / contract.classes.length),
      allowed: new Uint8Array(grid.count).fill(1),
      looks: [],
      unusual: 0,
    };
  }

  /** What is held of the scene now. */
  get state() {
    return this.states[this.states.length - 1];
  }

  get done() {
    return this.endedBy !== null;
  }

  /** The entropy after each look, that before the first one among them. */
  get entropies() {
    return this.states.map((state) => entropy(state.answers));
  }

  /** Whether the glimpses so far are unlike those of training; false where the model cannot tell. */
  get unusual() {
    const { ood_threshold: threshold } = this.network.contract;
    const { unusual, looks } = this.state;
    return threshold !== null && looks.length > 0 && unusual / looks.length > threshold;
  }

  /** The next choice: a place, and the gain map that chose it, null where none did. The same until something is looked at. */
  plan() {
    this.planned ??= this.choose(this.state);
    return this.planned;
  }

  async choose(state) {
    const look = state.looks.length;
    if (look === 0 && this.first !== null) return { place: this.first, gain: null };
    if (look === 0 || this.chooser === "random") {
      return { place: best(uniform(this.seed, look, this.grid.count), state.allowed), gain: null };
    }
    const { noise } = this.network.contract;
    const draw = noise && { normal, uniform }[noise.kind];
    const numbers = draw ? draw(this.seed, look, noise.count) : null;
    return this.network.decide(state.belief, { allowed: state.allowed, noise: numbers, question: this.question });
  }

  /** Look at a place, the chosen one if none is given, and take in what is seen there. */
  async look(place = null) {
    if (this.done) throw new Error("the episode is done");
    const plan = await this.planIf(place === null);
    const from = this.state;
    const at = place ?? plan.place;
    const next = await this.after(from, at);
    next.looks = [...from.looks, { place: at, chosen: plan !== null && plan.place === at, plan }];
    this.states.push(next);
    this.planned = null;
    await this.end();
    return next;
  }

  /** The choice where it is needed or made already: a look of one's own does not wait for it. */
  async planIf(needed) {
    return needed || this.planned ? this.plan() : null;
  }

  /** The state that a look at a place would lead to. */
  async after(state, place) {
    const seen = await this.network.see(state.belief, {
      glimpse: this.grid.glimpse(this.scene, place),
      location: this.grid.location(place),
    });
    const allowed = state.allowed.slice();
    allowed[place] = 0;
    return {
      belief: seen.belief,
      probabilities: Array.from(seen.probabilities),
      answers: this.answersOf(seen.probabilities),
      allowed,
      looks: state.looks,
      unusual: state.unusual + (seen.unusual ?? 0),
    };
  }

  answersOf(probabilities) {
    if (!this.question) return Array.from(probabilities);
    return this.question.answers.map(({ classes }) => classes.reduce((total, i) => total + probabilities[i], 0));
  }

  async end() {
    const { looks, allowed } = this.state;
    if (looks.length >= this.budget) this.endedBy = "budget";
    else if (!allowed.includes(1)) this.endedBy = "no location left";
    else {
      const why = await reasonToStop(this.stop, this.state, () => this.plan());
      if (why) [this.endedBy, this.why] = ["rule", why];
    }
  }
}
