// What may be asked of a belief: which class, or which group of classes.

const KNOWN = [
  {
    value: "animal-vehicle", title: "Animal or vehicle?",
    groups: { animal: ["bird", "cat", "deer", "dog", "frog", "horse"], vehicle: ["airplane", "automobile", "ship", "truck"] },
  },
  { value: "pet", title: "Pet, other animal or vehicle?", groups: { pet: ["cat", "dog"], "other animal": ["bird", "deer", "frog", "horse"], vehicle: ["airplane", "automobile", "ship", "truck"] } },
  { value: "odd-even", title: "Odd or even?", groups: { odd: ["1", "3", "5", "7", "9"], even: ["0", "2", "4", "6", "8"] } },
];

/** The questions that fit these classes: { value, title, groups }, groups null for the classes themselves. */
export function questionsFor(classes) {
  const fitting = KNOWN.filter(({ groups }) => sameNames(Object.values(groups).flat(), classes)).map(({ value, title, groups }) => ({
    value, title, groups: grouped(Object.entries(groups), classes),
  }));
  const each = classes.map((name) => ({
    value: `is:${name}`, title: `${name}, or something else?`,
    groups: grouped([[name, [name]], ["something else", classes.filter((other) => other !== name)]], classes),
  }));
  return [{ value: "", title: `Which of ${classes.length} classes?`, groups: null }, ...fitting, ...(classes.length > 2 ? each : [])];
}

function sameNames(some, others) {
  return some.length === others.length && some.every((name) => others.includes(name));
}

function grouped(groups, classes) {
  return { answers: groups.map(([name, members]) => ({ name, classes: members.map((member) => classes.indexOf(member)) })) };
}
