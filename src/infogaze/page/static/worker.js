// Runs the graphs, away from the page, so that it never waits for them.
//
// The page starts this as a blob that imports it, because such a worker keeps to the page's Content-Security-Policy.

import * as ort from "./runtime/ort.js";

ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

const sessions = new Map(); // by folder of a model and name of a graph

const ACTIONS = {
  /** Fetch the runtime and all files of a model, telling how far it has come, and make sessions of its graphs. */
  async open({ folder, runtime, graphs, weights }, tell) {
    const files = [...(ort.env.wasm.wasmBinary ? [] : [runtime]), ...graphs, weights];
    const total = files.reduce((sum, file) => sum + file.bytes, 0);
    let done = 0;
    const read = (file) => fetched(file.url, (count) => tell({ done: (done += count), total }));
    if (!ort.env.wasm.wasmBinary) ort.env.wasm.wasmBinary = await read(runtime);
    const shared = await read(weights);
    for (const graph of graphs) {
      const data = await read(graph);
      tell({ done, total, making: graph.name });
      const externalData = [{ path: weights.name, data: shared }];
      const session = await ort.InferenceSession.create(data, { executionProviders: ["wasm"], externalData });
      sessions.set(`${folder}/${graph.name}`, session);
    }
  },

  /** Run a graph; tensors come and go as { type, data, dims }. */
  async run({ folder, graph, feeds }) {
    const session = sessions.get(`${folder}/${graph}`);
    const given = {};
    for (const name of session.inputNames) {
      const { type, data, dims } = feeds[name];
      given[name] = new ort.Tensor(type, data, dims);
    }
    const said = await session.run(given);
    return Object.fromEntries(Object.entries(said).map(([name, tensor]) => [name, tensor.data.slice()]));
  },
};

async function fetched(url, tell) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} cannot be fetched (${response.status})`);
  const parts = [];
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    tell(value.length);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

// One after the other: a session takes one run at a time.
let last = Promise.resolve();

addEventListener("message", ({ data: { id, action, ...values } }) => {
  const tell = (progress) => postMessage({ id, progress });
  const run = last.then(() => ACTIONS[action](values, tell));
  last = run.catch(() => {});
  run.then(
    (result) => postMessage({ id, result }),
    (error) => postMessage({ id, error: String(error?.message ?? error) }),
  );
});

postMessage({ ready: true });
