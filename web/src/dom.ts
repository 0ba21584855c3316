// Small helpers. Text always goes in through textContent, never as markup.

export function all<E extends Element>(selector: string, inside: ParentNode = document): E[] {
  return [...inside.querySelectorAll<E>(selector)];
}

export function one<E extends Element>(selector: string, inside: ParentNode = document): E | null {
  return inside.querySelector<E>(selector);
}

export function make<K extends keyof HTMLElementTagNameMap>(
  name: K, text = "", attributes: Record<string, string> = {},
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

export function button(text: string, label: string, act: () => void): HTMLButtonElement {
  const element = make("button", text, { type: "button", "aria-label": label, title: label });
  element.addEventListener("click", act);
  return element;
}

/** A number as the page writes it (a true minus sign), or NaN. */
export function parse(text: string): number {
  const plain = text.trim().replace(/\u2212/g, "-");
  return plain === "" ? NaN : Number(plain.replace(/^(-?)inf$/, "$1Infinity"));
}
