// Folded claims: a link opens what it points at, paper shows everything, details of a large run are made when opened.
import { all, one } from "./dom";

type Enhance = (inside: ParentNode) => void;

export function fold(enhance: Enhance): void {
  const fill = unpacker(enhance);
  const items = all<HTMLDetailsElement>(".findings > .finding");
  for (const item of items) {
    item.addEventListener("toggle", () => {
      if (item.open) void fill(item);
    });
  }
  const reveal = async (): Promise<void> => {
    const inside = /^#f(\d+)(?:\D|$)/.exec(location.hash);
    const owner = inside ? document.getElementById(`f${inside[1]}`) : null;
    if (owner instanceof HTMLDetailsElement) await fill(owner);
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1))) ?? owner;
    if (!target) return;
    for (let node: Element | null = target; node; node = node.parentElement) if (node instanceof HTMLDetailsElement) node.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", () => void reveal());
  // A second click on the same link changes no hash, yet the reader wants to go there again.
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.<HTMLAnchorElement>('a[href^="#"]');
    if (link && link.hash === location.hash) void reveal();
  });
  if (location.hash) void reveal();

  const control = one<HTMLButtonElement>("#unfold");
  control?.addEventListener("click", () => {
    const open = control.textContent === "Unfold all";
    for (const item of items) if (!item.hidden) item.open = open;
    control.textContent = open ? "Fold all" : "Unfold all";
  });

  let before: HTMLDetailsElement[] = [];
  window.addEventListener("beforeprint", () => {
    before = all<HTMLDetailsElement>("details:not([open]):not(.twin)");
    for (const item of before) {
      void fill(item);
      item.open = true;
    }
  });
  window.addEventListener("afterprint", () => before.forEach((item) => { item.open = false; }));
}

/** Fills the body of a claim from the compressed text at the end of the page; escaped there by the page's own template. */
function unpacker(enhance: Enhance): (item: HTMLDetailsElement) => Promise<void> {
  const source = document.getElementById("packed")?.textContent;
  if (!source) return async () => undefined;
  let bodies: string[] | null = null;
  const ready = inflate(source).then((text) => { bodies = text.split("\0"); });
  return async (item) => {
    const body = one<HTMLElement>(".body[data-packed]", item);
    if (!body) return;
    // Without a wait when the text is there already: paper does not wait for promises.
    if (!bodies) await ready;
    if (!body.hasAttribute("data-packed")) return;
    body.removeAttribute("data-packed");
    // A parsed document runs no script, whatever its text holds.
    const parsed = new DOMParser().parseFromString(bodies?.[Number(item.id.slice(1))] ?? "", "text/html");
    body.append(...parsed.body.childNodes);
    enhance(body);
  };
}

async function inflate(base64: string): Promise<string> {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}
