// When enough has been seen: the rules of infogaze/gaze/stopping.py, and their reasons in words.

/** The entropy of a distribution, in nats. */
export function entropy(probabilities) {
  return probabilities.reduce((total, p) => (p > 0 ? total - p * Math.log(p) : total), 0);
}

const percent = (share) => `${(100 * share).toFixed(share < 0.9995 ? 1 : 0)} %`;

const RULES = {
  confidence: {
    fires: (state, threshold) => Math.max(...state.answers) >= threshold,
    why: (state, threshold) =>
      `The likeliest answer has ${percent(Math.max(...state.answers))}, and the rule asks for ${percent(threshold)}.`,
  },
  entropy: {
    fires: (state, threshold) => entropy(state.answers) <= threshold,
    why: (state, threshold) =>
      `The entropy is ${entropy(state.answers).toFixed(3)} nats, and the rule asks for at most ${threshold}.`,
  },
  gain: {
    needsPlan: true,
    fires: (state, threshold, plan) => largest(plan.gain, state.allowed) < threshold,
    why: (state, threshold, plan) =>
      `No place is expected to tell more than ${largest(plan.gain, state.allowed).toPrecision(2)} nats, ` +
      `and the rule asks for ${threshold} at least.`,
  },
};

/** The largest value among the allowed places. */
export function largest(gain, allowed) {
  return gain.reduce((most, value, place) => (allowed[place] && value > most ? value : most), -Infinity);
}

/** A rule with one threshold for every number of looks. */
export function fixedRule(rule, threshold) {
  return { rule, threshold: () => threshold };
}

/** The rule that a model was calibrated with; its thresholds are for a number of looks each. */
export function calibratedRule({ rule, thresholds, budget }) {
  return { rule, threshold: (looks) => (looks > 0 && looks < budget ? (thresholds[looks - 1] ?? null) : null) };
}

/** Why the episode may stop in this state, as a sentence; null while it goes on. `plan` gives the choice for the next look. */
export async function reasonToStop(stop, state, plan) {
  const threshold = stop && stop.threshold(state.looks.length);
  if (threshold === null || threshold === undefined) return null;
  const rule = RULES[stop.rule];
  const next = rule.needsPlan ? await plan() : null;
  if (rule.needsPlan && !next.gain) return null;
  return rule.fires(state, threshold, next) ? rule.why(state, threshold, next) : null;
}
