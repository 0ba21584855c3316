// A copy button beside every command.
import { all, make } from "./dom";

export function copyButtons(inside: ParentNode = document): void {
  for (const place of all<HTMLElement>(".rerun", inside)) {
    const text = place.querySelector("code")?.textContent ?? "";
    const control = make("button", "Copy", { type: "button", class: "quiet" });
    control.addEventListener("click", async () => {
      control.textContent = (await copy(text, place)) ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { control.textContent = "Copy"; }, 1600);
    });
    control.setAttribute("aria-live", "polite");
    place.append(control);
  }
}

async function copy(text: string, place: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without the permission the text is selected, so that one key press copies it.
    const code = place.querySelector("code");
    if (code) getSelection()?.selectAllChildren(code);
    return false;
  }
}
