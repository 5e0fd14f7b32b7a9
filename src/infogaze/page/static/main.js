// The page: what the visitor does, and what is shown for it.

import { amounts, entropyChart, frame } from "./belief.js";
import { Camera } from "./camera.js";
import { element, nats, percent, press } from "./elements.js";
import { Episode } from "./episode.js";
import { readLink, writeLink } from "./link.js";
import { Engine, Network } from "./network.js";
import { PictureError, decode, sceneOf } from "./picture.js";
import { Player } from "./player.js";
import { questionsFor } from "./questions.js";
import { calibratedRule, entropy, fixedRule } from "./stopping.js";

const $ = (id) => document.getElementById(id);
const base = new URL(".", import.meta.url);
const SPEEDS = [1, 2, 4];
const PAUSE = 1500; // between two looks of play, milliseconds

const page = {
  settings: null,
  engine: null,
  networks: new Map(), // promises, by name of a model
  pictures: new Map(), // decoded, by name
  own: null, // the visitor's picture, decoded
  waiting: null, // looks of a link that wait for the visitor's picture
  mode: "watch",
  model: "",
  picture: "",
  seed: "0",
  question: "",
  stop: "",
  overlay: "gain",
  speed: 0,
  players: [],
  playing: false,
  revealed: false,
  replay: [], // looks of a link that are still to be taken
  busy: 0, // actions under way
  lastWorth: null, // a look of the visitor's that is to be compared with the model's
  episode: 0, // which one is shown: what belongs to an earlier one is dropped
};
/** For tests and the curious. */
globalThis.infogaze = page;

// --- loading ---

async function wake() {
  if (typeof WebAssembly !== "object" || typeof Worker !== "function") {
    asleep("This browser runs no WebAssembly, which the models need. Any browser of the last five years does.");
    return;
  }
  says("Loading.");
  page.settings = await (await fetched("settings.json")).json();
  page.engine = new Engine();
  fillModels();
  adopt(readLink(location.hash));
  await begin();
}

async function fetched(path) {
  const response = await fetch(new URL(path, base));
  if (!response.ok) throw new Error(`${path} cannot be fetched (${response.status})`);
  return response;
}

/** A model's networks, loaded once. */
function network(name) {
  if (!page.networks.has(name)) {
    const model = page.settings.models.find((one) => one.name === name);
    const opening = Network.open(page.engine, { model, runtime: page.settings.runtime, base }, (progress) => show(name, progress));
    page.networks.set(name, opening);
    opening.then(
      () => ($("waking").hidden = true),
      () => page.networks.delete(name),
    );
  }
  return page.networks.get(name);
}

function show(name, { done, total, making }) {
  const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
  $("waking").hidden = false;
  [$("waking-bar").max, $("waking-bar").value] = [total, done];
  const far = `${megabytes(done)} of ${megabytes(total)} MB`;
  const words = making ? `Making ${name} ready.` : `Loading ${name}: ${far}`;
  if ($("waking-says").textContent !== words) $("waking-says").textContent = words;
}

function asleep(words) {
  $("waking").hidden = true;
  trouble(words);
}

function trouble(words) {
  $("trouble").textContent = words ?? "";
  $("trouble").hidden = !words;
}

function says(words, ...strong) {
  const parts = words.split("*");
  $("says").replaceChildren(...parts.map((part, i) => (i % 2 ? element("strong", { textContent: part }) : part)), ...strong);
}

// --- what can be chosen ---

function fillModels() {
  $("model").replaceChildren(...page.settings.models.map(({ name }) => option(name, name)));
}

const option = (value, textContent) => element("option", { value, textContent });

function modelSettings(name = page.model) {
  return page.settings.models.find((one) => one.name === name);
}

/** Take what a link says, as far as it makes sense here. */
function adopt(link) {
  const models = page.settings.models.map((model) => model.name);
  page.mode = ["watch", "compare", "quiz"].includes(link.mode) ? link.mode : "watch";
  page.model = models.includes(link.model) ? link.model : models[0];
  page.seed = link.seed ?? "0";
  page.question = link.question ?? "";
  page.stop = link.stop ?? "";
  const names = picturesFor(page.model).map((picture) => picture.name);
  page.waiting = null;
  if (link.picture === "own") {
    if (page.own) page.picture = "own";
    else [page.picture, page.waiting] = [names[0], link.looks ?? []];
  } else page.picture = names.includes(link.picture) ? link.picture : names[0];
  page.replay = page.waiting ? [] : [...(link.looks ?? [])];
}

/** The bundled pictures that a model can name; all of them where it can name none. */
function picturesFor(name) {
  const { classes } = modelSettings(name);
  const known = page.settings.pictures.filter((picture) => classes.includes(picture.label));
  return known.length ? known : page.settings.pictures;
}

function fillControls() {
  const { classes, stop } = modelSettings();
  const questions = questionsFor(classes);
  if (!questions.some((question) => question.value === page.question) || !modelSettings().asks) page.question = "";
  const choices = modelSettings().asks ? questions : questions.slice(0, 1);
  $("question").replaceChildren(...choices.map(({ value, title }) => option(value, title)));
  const rules = { ...(stop ? { own: "By the model's own calibrated rule" } : {}), ...STOPS };
  if (!(page.stop in rules)) page.stop = stop ? "own" : "never";
  $("stop").replaceChildren(...Object.entries(rules).map(([value, title]) => option(value, title)));
  [$("model").value, $("question").value, $("stop").value, $("seed").value] = [page.model, page.question, page.stop, page.seed];
  const pictures = picturesFor(page.model).map(({ name }, i) => pictureButton(name, String(i + 1), `Picture ${i + 1}`));
  const own = page.own ? [pictureButton("own", "Yours", "Your picture")] : [];
  const open = element("button", { type: "button", id: "own", textContent: page.own ? "Another…" : "Your own…" });
  open.addEventListener("click", () => $("file").click());
  const camera = element("button", { type: "button", id: "use-camera", textContent: "Camera…" });
  camera.addEventListener("click", () => new Camera(usePicture, trouble).open());
  const before = $("pictures").contains(document.activeElement) ? document.activeElement : null;
  $("pictures").replaceChildren(...pictures, ...own, open, camera);
  const same = ({ id, dataset }) => before && id === before.id && dataset.picture === before.dataset.picture;
  [...$("pictures").children].find(same)?.focus();
  for (const button of document.querySelectorAll("[data-mode]")) {
    if (button.tagName === "BUTTON") press(button, button.dataset.mode === page.mode);
  }
  $("stage").dataset.mode = page.mode;
}

const STOPS = {
  never: "Never: use all looks",
  "confidence:0.9": "When 90 % sure",
  "confidence:0.95": "When 95 % sure",
  "confidence:0.99": "When 99 % sure",
  "gain:0.01": "When little is left to gain (0.01 nats)",
};

function pictureButton(name, textContent, label) {
  const attributes = { "aria-label": label };
  const made = element("button", { type: "button", className: "number", textContent, attributes, dataset: { picture: name } });
  press(made, name === page.picture);
  made.addEventListener("click", () => change({ picture: name }));
  return made;
}

/** The rule for a player. One that was calibrated is for the model that it was calibrated with, and its own looks. */
function stopRule(who) {
  if (page.mode === "quiz" || page.stop === "never") return null;
  if (page.stop === "own") return who === "ours" ? calibratedRule(modelSettings().stop) : null;
  const [rule, threshold] = page.stop.split(":");
  return fixedRule(rule, Number(threshold));
}

function theQuestion() {
  const { classes } = modelSettings();
  return questionsFor(classes).find((question) => question.value === page.question)?.groups ?? null;
}

/** Change what is looked at or how, and begin again. */
function change(values) {
  Object.assign(page, values);
  if ("model" in values && page.picture !== "own") {
    const names = picturesFor(page.model).map((picture) => picture.name);
    if (!names.includes(page.picture)) page.picture = names[0];
  }
  [page.waiting, page.replay] = [null, []];
  return begin();
}

// --- pictures ---

async function pictureNow() {
  if (page.picture === "own") return page.own;
  if (!page.pictures.has(page.picture)) {
    const { file } = page.settings.pictures.find((picture) => picture.name === page.picture);
    page.pictures.set(page.picture, await decode(await (await fetched(file)).blob()));
  }
  return page.pictures.get(page.picture);
}

/** A picture of the visitor's own: a file, or a decoded frame of the camera. */
async function usePicture(given) {
  try {
    const picture = given instanceof Blob ? await decode(given) : given;
    if (page.settings) {
      const { grid } = await network(page.model);
      sceneOf(picture, grid, (await network(page.model)).contract.fit); // says so if it is too small
    }
    page.own = picture;
    Object.assign(page, { picture: "own", waiting: null, replay: [...(page.waiting ?? [])] });
    await begin();
  } catch (error) {
    if (!(error instanceof PictureError)) throw error;
    trouble(error.message);
  }
}

// --- an episode ---

/** Begin an episode with all that is chosen, and take the looks of a link. */
async function begin() {
  const number = ++page.episode;
  Object.assign(page, { players: [], playing: false, revealed: false, lastWorth: null });
  trouble(null);
  fillControls();
  showPlaying();
  enable(false);
  for (const id of ["worth", "guess"]) $(id).hidden = true;
  $("film").replaceChildren();
  const [picture, players] = await Promise.all([pictureNow(), cast()]);
  if (number !== page.episode) return;
  const scenes = players.map(({ network: of }) => sceneOf(picture, of.grid, of.contract.fit));
  page.players = players.map(({ network: of, chooser, ...rest }, i) => {
    const question = theQuestion();
    const episode = new Episode({ network: of, scene: scenes[i], seed: page.seed, chooser, question, stop: stopRule(rest.who) });
    return new Player(episode, { ...rest, colours: page.settings.colours });
  });
  // All begin at the same place, wherever grids are the same.
  const first = await page.players[0].episode.plan();
  for (const { episode } of page.players.slice(1)) if (episode.grid.count === page.players[0].episode.grid.count) episode.first = first.place;
  $("boards").replaceChildren(...page.players.map((player) => player.element));
  const watched = page.mode === "watch" ? [page.players[0].bars.element] : [];
  $("belief").replaceChildren(...watched);
  opening();
  enable(true);
  draw();
  await think(number);
  await replay(number);
}

/** Who looks, in this mode. */
async function cast() {
  const ours = await network(page.model);
  const { name, method } = modelSettings();
  const clicked = (place) => turn(() => lookAt(place));
  if (page.mode === "watch") return [{ network: ours, chooser: "own", who: "ours", title: name, note: "", clicked }];
  if (page.mode === "quiz") {
    return [
      { network: ours, chooser: "own", who: "you", title: "You", note: "You choose, the network reads.", clicked, compact: true },
      { network: ours, chooser: "own", who: "ours", title: "The model", note: `${name} chooses for itself.`, compact: true },
    ];
  }
  const { classes } = modelSettings();
  const paper = page.settings.models.find((model) => model.method === "paper" && model.name !== page.model && String(model.classes) === String(classes));
  const others = paper
    ? [{ network: await network(paper.name), chooser: "own", who: "paper", title: "The paper's", note: `${paper.name}, by what it imagines alone.`, compact: true }]
    : [];
  const own = method === "paper" ? "The paper's" : "Ours";
  return [
    { network: ours, chooser: "own", who: "ours", title: own, note: `${name} chooses by expected gain.`, compact: true },
    ...others,
    { network: ours, chooser: "random", who: "random", title: "At random", note: `${name}, with looks at random.`, compact: true },
  ];
}

function opening() {
  if (page.waiting) {
    says("This link was made with a picture of its sender's own, which it does not hold. Open the same picture here to see the same looks.");
  } else if (page.mode === "quiz") {
    says(`You and the model have ${budget()} looks each at the same hidden picture. The first is the same for both. *Choose a place.*`);
  } else says("The picture is hidden, and nothing has been looked at. The first look is at random.");
}

const budget = () => page.players[0].episode.budget;
const mine = () => page.players[0];
const isDone = () => page.players.length > 0 && page.players.every((player) => player.episode.done);

/** Actions of the visitor are done one after the other. */
let last = Promise.resolve();
function turn(action) {
  const number = page.episode;
  last = counted(last.then(() => (number === page.episode ? action() : undefined))).catch(wrong);
  return last;
}

function counted(promise) {
  page.busy += 1;
  return promise.finally(() => (page.busy -= 1));
}

function wrong(error) {
  page.playing = false;
  showPlaying();
  trouble(`Something went wrong: ${error.message ?? error}`);
}

/** One look of every player, where each chooses for itself. */
async function step() {
  if (!page.players.length || isDone()) return;
  if (page.mode === "quiz" && mine().episode.state.looks.length > 0) return;
  const number = page.episode;
  const going = page.players.filter((player) => !player.episode.done);
  for (const player of going) {
    await player.look();
    if (number !== page.episode) return;
  }
  page.lastWorth = null;
  after();
  await think(number);
}

/** Look where the visitor says. */
async function lookAt(place) {
  const player = mine();
  if (!page.players.length || player.episode.done || page.revealed || !player.episode.state.allowed[place]) return;
  const [number, before] = [page.episode, player.episode.state];
  const plan = before.looks.length ? await player.episode.plan() : null;
  await player.look(place);
  if (number !== page.episode) return;
  if (page.mode === "quiz") {
    await page.players[1].look(before.looks.length ? null : place);
    if (number !== page.episode) return;
  }
  page.lastWorth = plan && plan.place !== place ? { place, plan, before } : null;
  after();
  if (page.lastWorth && page.mode === "watch") await judge(number, page.lastWorth);
  await think(number);
}

/** What the visitor's look was worth, and what the model would have gained. */
async function judge(number, { place, plan, before }) {
  const { episode } = mine();
  const instead = await episode.after(before, plan.place);
  if (number !== page.episode) return;
  const [had, yours, models] = [before, episode.state, instead].map((state) => entropy(state.answers));
  const where = (of) => `row ${episode.grid.location(of).join(", column ")}`;
  const verb = (value) => (value >= 0 ? `fell by ${nats(value)}` : `rose by ${nats(-value)}`);
  const expected = plan.gain
    ? ` It expected ${nats(plan.gain[place])} nats of your place and ${nats(plan.gain[plan.place])} of its own.`
    : "";
  $("worth").replaceChildren(
    element("p", {
      textContent:
        `You looked at ${where(place)}, and the entropy ${verb(had - yours)} nats. ` +
        `The model would have looked at ${where(plan.place)}, and it would have ${verb(had - models).replace("rose", "risen").replace("fell", "fallen")}.${expected}`,
    }),
    amounts([
      { label: "Your look", value: had - yours, kind: "yours" },
      { label: "The model's", value: had - models, kind: "models" },
    ]),
  );
  $("worth").hidden = false;
}

/** Show a state that was just reached. */
function after() {
  $("worth").hidden = true;
  if (page.mode === "watch") sayLook();
  else if (page.mode === "compare") sayComparison();
  else sayQuiz();
  draw();
  film();
  $("link-says").textContent = "It holds the model, the seed and the looks. Never the picture.";
  remember();
}

function sayLook() {
  const { episode } = mine();
  const [before] = episode.states.slice(-2);
  const from = before.looks.length ? mine().episode.answers[before.answers.indexOf(Math.max(...before.answers))] : null;
  const changed = from && from !== mine().answer ? `, no longer *${from}*` : "";
  if (episode.done) says(mine().outcome());
  else {
    const looks = episode.state.looks.length;
    says(`After ${looks} of ${episode.budget} looks: *${mine().answer}*, ${percent(mine().certainty)}${changed}.`);
  }
}

function sayComparison() {
  const each = page.players.map((player) => `${player.title}: ${player.answer}, ${percent(player.certainty)}`);
  const looks = Math.max(...page.players.map((player) => player.episode.state.looks.length));
  says(`${isDone() ? "Done" : `After ${looks} of ${budget()} looks`}. ${each.join(". ")}.`);
}

function sayQuiz() {
  const { state, budget: most } = mine().episode;
  const left = most - state.looks.length;
  if (left) says(`${left === 1 ? "One look" : `${left} looks`} left. *Choose a place.*`);
  else askVisitor();
}

/** At the end of a quiz the visitor says what it is, before anything is shown. */
function askVisitor() {
  says("Your looks are taken. What is it?");
  const buttons = mine().episode.answers.map((answer) => {
    const made = element("button", { type: "button", textContent: answer });
    made.addEventListener("click", () => judgeQuiz(answer));
    return made;
  });
  $("guess").replaceChildren(element("p", { textContent: "From what you saw, it is:" }), element("div", { className: "row" }, ...buttons));
  $("guess").hidden = false;
}

function judgeQuiz(guessed) {
  const [you, model] = page.players;
  page.revealed = true;
  $("guess").hidden = true;
  const truth = truthNow();
  const told = truth ? ` The answer is *${truth}*${guessed === truth ? ", as you said" : `; you said ${guessed}`}.` : ` You said ${guessed}.`;
  const sure = (player) => (truth ? player.episode.state.answers[player.episode.answers.indexOf(truth)] : player.certainty);
  const ahead = sure(you) - sure(model);
  const what = truth ? `probability of ${truth}` : "certainty";
  const winner = Math.abs(ahead) < 0.01 ? "Your looks were as good as the model's" : ahead > 0 ? "*Your looks were better*" : "*The model's looks were better*";
  says(`${winner}: a ${what} of ${percent(sure(you))} with yours, ${percent(sure(model))} with its own.${told}`);
  draw();
  film();
}

/** The answer that is right for a bundled picture; null where nobody knows. */
function truthNow() {
  const label = page.settings.pictures.find((picture) => picture.name === page.picture)?.label;
  const { classes } = modelSettings();
  if (page.picture === "own" || !classes.includes(label)) return null;
  const question = theQuestion();
  return question ? question.answers.find((answer) => answer.classes.includes(classes.indexOf(label))).name : label;
}

/** Let every player find out where it would look next; the visitor may act meanwhile. */
async function think(number) {
  for (const player of page.players) {
    await player.think({ imagines: page.mode !== "quiz" });
    if (number !== page.episode) return;
    draw();
  }
  film();
}

async function replay(number) {
  for (; page.replay.length > 0; page.replay.shift()) {
    const [place] = page.replay;
    if (mine().episode.state.allowed[place]) await turn(() => (page.mode === "compare" ? step() : lookAt(place)));
    if (number !== page.episode) return;
  }
}

function draw() {
  const quiz = page.mode === "quiz";
  const over = quiz && !page.revealed;
  page.players.forEach((player, i) => {
    player.draw({ overlay: over ? "nothing" : page.overlay, revealed: page.revealed, open: i === 0 && !page.revealed && page.mode !== "compare", secret: over });
    if (quiz && i === 1) player.board.coverWith(over ? `It has taken ${player.episode.state.looks.length} of ${player.episode.budget} looks.` : null);
  });
  $("entropy").hidden = over;
  $("chart").replaceChildren(entropyChart(page.players.map(line), Math.log(mine().episode.answers.length)));
  buttons();
}

function line({ who, title, episode }) {
  const elsewhere = episode.state.looks.map((look) => page.mode === "watch" && look.plan !== null && !look.chosen);
  return { who, name: title, entropies: episode.entropies, elsewhere, budget: episode.budget };
}

function buttons() {
  const quiz = page.mode === "quiz";
  const started = page.players.some((player) => player.episode.state.looks.length > 0);
  $("step").disabled = isDone() || page.revealed || (quiz && started);
  $("play").disabled = isDone() || page.revealed || quiz;
  $("over").disabled = !started;
  $("step").hidden = quiz && started;
  $("overlays").hidden = quiz;
  $("faster").hidden = $("play").hidden = $("reveal").hidden = quiz; // in a quiz the visitor's answer reveals
  $("reveal").textContent = page.revealed ? "Hide" : "Reveal";
  press($("reveal"), page.revealed);
  $("step").textContent = quiz ? "First look" : "Look";
  for (const button of $("overlays").children) press(button, button.dataset.overlay === page.overlay);
}

function film() {
  const player = mine();
  const { episode } = player;
  if (page.mode !== "watch") return $("film").replaceChildren();
  const frames = episode.state.looks.map((look, i) => {
    const { answers } = episode.states[i + 1];
    const best = answers.indexOf(Math.max(...answers));
    return frame(episode.grid, {
      scene: episode.scene,
      places: episode.state.looks.slice(0, i + 1).map((one) => one.place),
      imagined: player.imagined[i + 1],
      title: `${i + 1}. ${episode.answers[best]}`,
      note: `${percent(answers[best])}${look.plan !== null && !look.chosen && i > 0 ? ", your look" : ""}`,
    });
  });
  $("film").replaceChildren(...frames);
}

function enable(on) {
  for (const id of ["step", "play", "over", "reveal"]) $(id).disabled = !on;
}

// --- play ---

async function play() {
  page.playing = !page.playing;
  showPlaying();
  const number = page.episode;
  while (page.playing && number === page.episode && !isDone()) {
    await turn(step);
    if (isDone()) break;
    await new Promise((resolve) => setTimeout(resolve, PAUSE / SPEEDS[page.speed]));
  }
  if (number === page.episode) {
    page.playing = false;
    showPlaying();
  }
}

function showPlaying() {
  press($("play"), page.playing);
  $("play").textContent = page.playing ? "Pause" : "Play";
}

function faster() {
  page.speed = (page.speed + 1) % SPEEDS.length;
  $("faster").textContent = `${SPEEDS[page.speed]}×`;
  $("faster").setAttribute("aria-label", `Speed of play: ${SPEEDS[page.speed]} times`);
}

function reveal() {
  page.revealed = !page.revealed;
  page.playing = false;
  showPlaying();
  if (page.revealed) {
    const truth = truthNow();
    const [player] = page.players;
    const looks = player.episode.state.looks.length;
    const said = looks && page.mode === "watch" ? ` The model says *${player.answer}*, ${percent(player.certainty)}, after ${looks === 1 ? "one look" : `${looks} looks`}.` : "";
    says(`${truth ? `The answer is *${truth}*.` : "This is the picture, as large as the model could see it."}${said}`);
  } else if (mine().episode.state.looks.length) after();
  else opening();
  draw();
}

// --- links ---

function linkNow() {
  const looks = page.players.length ? mine().episode.state.looks.map((look) => look.place) : [];
  const { mode, model, picture, seed, question, stop } = page;
  return writeLink({ mode: mode === "watch" ? "" : mode, model, picture, seed, looks, question, stop });
}

let remembered = location.hash;

/** Keep the address true, so that a reload shows the same. */
function remember() {
  remembered = linkNow();
  history.replaceState(null, "", remembered);
}

async function copyLink() {
  remember();
  try {
    await navigator.clipboard.writeText(location.href);
    $("link-says").textContent = "Copied. It holds the model, the seed and the looks. Never the picture.";
  } catch {
    $("link-says").textContent = `This browser copies nothing by itself. The link is in the address bar.`;
  }
}

// --- what the visitor does ---

function listen() {
  $("step").addEventListener("click", () => turn(step));
  $("play").addEventListener("click", play);
  $("faster").addEventListener("click", faster);
  $("over").addEventListener("click", () => guarded(change({})).then(remember));
  $("reveal").addEventListener("click", reveal);
  $("link").addEventListener("click", copyLink);
  for (const name of ["model", "question", "stop"]) $(name).addEventListener("change", ({ target }) => guarded(change({ [name]: target.value })));
  $("seed").addEventListener("change", ({ target }) => {
    if (/^\d{1,18}$/.test(target.value.trim())) guarded(change({ seed: String(BigInt(target.value.trim())) }));
    else {
      target.value = page.seed;
      trouble("A seed is a whole number, such as 7.");
    }
  });
  $("another").addEventListener("click", () => guarded(change({ seed: String(crypto.getRandomValues(new Uint16Array(1))[0]) })));
  for (const button of document.querySelectorAll(".modes button")) button.addEventListener("click", () => guarded(change({ mode: button.dataset.mode })));
  for (const button of $("overlays").children) {
    button.addEventListener("click", () => {
      page.overlay = button.dataset.overlay;
      draw();
    });
  }
  $("file").addEventListener("change", ({ target }) => {
    const [file] = target.files;
    target.value = "";
    if (file) guarded(usePicture(file));
  });
  addEventListener("dragover", (event) => {
    event.preventDefault();
    $("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => ($("drop").hidden = event.relatedTarget === null));
  addEventListener("drop", (event) => {
    event.preventDefault();
    $("drop").hidden = true;
    const [file] = event.dataTransfer.files;
    if (file) guarded(usePicture(file));
    else trouble("What was dropped is no file. Save the picture first, and drop that.");
  });
  addEventListener("hashchange", () => {
    if (location.hash === remembered) return;
    adopt(readLink(location.hash));
    guarded(begin());
  });
}

/** What fails is said in a sentence. */
function guarded(promise) {
  return counted(promise).catch((error) => {
    if (!page.players.length) asleep(`The model cannot be run here: ${error.message ?? error}.`);
    else wrong(error);
  });
}

if (matchMedia("(max-width: 46rem)").matches) $("choices").open = false;
listen();
guarded(wake());
