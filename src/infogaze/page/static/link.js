// A link reproduces an episode: model, seed, looks and what was asked; of the picture at most the name of a bundled one.

const FIELDS = ["mode", "model", "picture", "seed", "looks", "question", "stop"];

/** What an address says after its #; what is not said, or makes no sense, is left out. */
export function readLink(hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const found = {};
  for (const name of FIELDS) if (said.has(name)) found[name] = said.get(name);
  if ("looks" in found) {
    found.looks = found.looks.split(".").filter(Boolean).map(Number);
    if (!found.looks.every((place) => Number.isInteger(place) && place >= 0)) delete found.looks;
  }
  if ("seed" in found && !/^\d{1,18}$/.test(found.seed)) delete found.seed;
  return found;
}

/** The part of the address after its #. */
export function writeLink(values) {
  const said = new URLSearchParams();
  for (const name of FIELDS) {
    const value = name === "looks" ? (values.looks ?? []).join(".") : values[name];
    if (value !== undefined && value !== null && value !== "") said.set(name, value);
  }
  return `#${said}`;
}
