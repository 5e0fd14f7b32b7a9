// The networks of a model, as the contract of `infogaze export` has them, behind three questions: see, decide, imagine.

import { Grid } from "./grid.js";

/** The worker that runs the graphs, and what it was asked. */
export class Engine {
  constructor() {
    const module = new URL("worker.js", import.meta.url).href;
    const blob = new Blob([`import ${JSON.stringify(module)};`], { type: "text/javascript" });
    this.worker = new Worker(URL.createObjectURL(blob), { type: "module" });
    this.asked = new Map();
    this.count = 0;
    this.ready = new Promise((resolve, reject) => {
      this.worker.addEventListener("message", ({ data }) => (data.ready ? resolve() : this.answer(data)));
      this.worker.addEventListener("error", (event) => {
        event.preventDefault();
        reject(new Error(event.message || "the worker cannot be started"));
      });
    });
  }

  /** Do an action of the worker; `progress` is told how far it has come. */
  async ask(action, values, progress = () => {}) {
    await this.ready;
    return new Promise((resolve, reject) => {
      const id = this.count++;
      this.asked.set(id, { resolve, reject, progress });
      this.worker.postMessage({ id, action, ...values });
    });
  }

  answer({ id, progress, result, error }) {
    const asked = this.asked.get(id);
    if (progress) return asked.progress(progress);
    this.asked.delete(id);
    return error === undefined ? asked.resolve(result) : asked.reject(new Error(error));
  }
}

export class Network {
  constructor(engine, { folder, contract, name }) {
    Object.assign(this, { engine, folder, contract, name });
    this.grid = new Grid(contract);
  }

  /** Fetch what `settings` say of a model, and make it ready. */
  static async open(engine, { model, runtime, base }, progress) {
    const url = (path) => new URL(path, base).href;
    const response = await fetch(url(`${model.folder}/contract.json`));
    if (!response.ok) throw new Error(`${model.folder}/contract.json cannot be fetched (${response.status})`);
    const contract = await response.json();
    const graphs = Object.entries(contract.graphs).map(([name, graph]) => ({
      name, url: url(`${model.folder}/${graph.file}`), bytes: graph.bytes,
    }));
    const { file, bytes } = contract.weights;
    const weights = { name: file, url: url(`${model.folder}/${file}`), bytes };
    const wasm = { url: url(runtime.file), bytes: runtime.bytes };
    await engine.ask("open", { folder: model.folder, runtime: wasm, graphs, weights }, progress);
    return new Network(engine, { folder: model.folder, contract, name: model.name });
  }

  /** The belief before the first look: an array a name. */
  start() {
    return Object.fromEntries(
      this.contract.belief.map(({ name, size, start }) => [
        name, Array.isArray(start) ? Float32Array.from(start) : new Float32Array(size).fill(start),
      ]),
    );
  }

  get imagines() {
    return "imagine" in this.contract.graphs;
  }

  /** Take in a glimpse: the next belief, the probabilities of the classes, and how unusual the glimpse is. */
  async see(belief, { glimpse, location }) {
    const { channels, glimpseSize: side } = this.grid;
    const said = await this.run("see", {
      ...beliefs(belief),
      glimpse: { type: "float32", data: glimpse, dims: [1, channels, side, side] },
      location: { type: "float32", data: Float32Array.from(location), dims: [1, 2] },
    });
    const next = Object.fromEntries(Object.keys(belief).map((name) => [name, said[`next.${name}`]]));
    return { belief: next, probabilities: said.probabilities, unusual: said.ood_score?.[0] };
  }

  /** Where to look next: a place, and what a look at each place is expected to be worth, null where the method has no map. */
  async decide(belief, { allowed, noise, question }) {
    const { count } = this.grid;
    const feeds = {
      ...beliefs(belief),
      allowed: { type: "bool", data: allowed, dims: [1, count] },
      ...(noise ? { noise: { type: "float32", data: noise, dims: [1, noise.length] } } : {}),
      ...(question ? { groups: this.groups(question) } : {}),
    };
    const said = await this.run(question ? "ask" : "decide", feeds);
    const [row, col] = said.location;
    const place = this.grid.tops.indexOf(row) * this.grid.cols + this.grid.lefts.indexOf(col);
    return { place, gain: this.contract.has_map ? said.gain : null };
  }

  /** The answers of a question as the graph takes them: as many groups as there are classes, of which some may be empty. */
  groups(question) {
    const { length } = this.contract.classes;
    const data = new Float32Array(length * length);
    question.answers.forEach(({ classes }, answer) => classes.forEach((i) => (data[answer * length + i] = 1)));
    return { type: "float32", data, dims: [1, length, length] };
  }

  /** What is expected of the whole scene: bytes, one channel after the other, and how uncertain each place is. */
  async imagine(belief) {
    const said = await this.run("imagine", beliefs(belief));
    return { scene: Uint8Array.from(said.picture, (value) => Math.round(255 * value)), uncertainty: said.uncertainty };
  }

  run(graph, feeds) {
    return this.engine.ask("run", { folder: this.folder, graph, feeds });
  }
}

function beliefs(belief) {
  return Object.fromEntries(
    Object.entries(belief).map(([name, data]) => [
      `belief.${name}`, { type: "float32", data, dims: [1, data.length] },
    ]),
  );
}
