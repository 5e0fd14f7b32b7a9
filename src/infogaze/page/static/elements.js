// Elements of the page, made without markup: the Content-Security-Policy allows no style attributes.

/** An element with properties, attributes under `attributes`, and what is in it. */
export function element(name, { attributes = {}, dataset = {}, ...properties } = {}, ...inside) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  Object.assign(made.dataset, dataset);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

/** An element of a drawing. */
export function drawn(name, attributes = {}, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

/** A button that is pressed or not. */
export function press(button, pressed) {
  button.setAttribute("aria-pressed", String(pressed));
}

export const percent = (share) => `${(100 * share).toFixed(share > 0.9995 || share < 0.0005 ? 0 : 1)} %`;

/** A number of nats, with as many digits as say something. */
export function nats(value) {
  if (value !== 0 && Math.abs(value) < 0.00005) return value < 0 ? "−0.0000" : "0.0000";
  const digits = Math.abs(value) >= 0.1 || value === 0 ? 2 : Math.abs(value) >= 0.01 ? 3 : 4;
  return value.toFixed(digits).replace("-", "−");
}

/** Which of these is the largest. */
export function largestOf(values) {
  return values.reduce((found, value, i) => (value > values[found] ? i : found), 0);
}
