// The switch between the theme of the system, light and dark.
const NEXT = { "": "light", light: "dark", dark: "" };
const LABELS = { "": "System", light: "Light", dark: "Dark" };
const root = document.documentElement;

function show(button) {
  button.querySelector("#theme-name").textContent = LABELS[root.dataset.theme ?? ""];
}

export function startThemeSwitch(onChange) {
  const button = document.getElementById("theme");
  if (!button) return;
  button.hidden = false;
  show(button);
  button.addEventListener("click", () => {
    const theme = NEXT[root.dataset.theme ?? ""];
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // The choice lasts as long as the page.
    }
    show(button);
    onChange();
  });
}
