// Light, dark, or whatever the system says; remembered where the browser lets a local file remember.
import { one } from "./dom";

const NAMES = ["auto", "light", "dark"] as const;
type Name = (typeof NAMES)[number];

export function theme(): void {
  const control = one<HTMLButtonElement>("#theme");
  if (!control) return;
  const show = (name: Name): void => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    control.textContent = `Theme: ${name}`;
  };
  let current = remembered();
  show(current);
  control.addEventListener("click", () => {
    current = NAMES[(NAMES.indexOf(current) + 1) % NAMES.length] ?? "auto";
    show(current);
    try {
      localStorage.setItem("assay-theme", current);
    } catch {
      // Storage may be forbidden for local files; the choice then lasts as long as the page.
    }
  });
  control.closest("[hidden]")?.removeAttribute("hidden");
}

function remembered(): Name {
  try {
    const name = localStorage.getItem("assay-theme");
    return NAMES.find((known) => known === name) ?? "auto";
  } catch {
    return "auto";
  }
}
