// Light or dark: as the system has it, until the visitor says otherwise.

const button = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");

function kept() {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null; // a browser that keeps nothing
  }
}

function keep(theme) {
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // it is not kept, and holds for this visit
  }
}

let chosen = kept();

function show() {
  const dark = chosen ? chosen === "dark" : system.matches;
  if (chosen) document.documentElement.dataset.theme = chosen;
  button.setAttribute("aria-pressed", String(dark));
}

button.addEventListener("click", () => {
  chosen = button.getAttribute("aria-pressed") === "true" ? "light" : "dark";
  keep(chosen);
  show();
});
system.addEventListener("change", show);
show();
