// Filter by verdict and text, and order: the claims and the list beside them move together.
import { all, one } from "./dom";

interface Claim {
  readonly parts: HTMLElement[];
  readonly verdict: string;
  readonly severity: number;
  readonly score: number;
  readonly seconds: number;
  readonly name: string;
  readonly words: string;
  readonly asked: number;
}

const ORDERS: Record<string, (a: Claim, b: Claim) => number> = {
  asked: (a, b) => a.asked - b.asked,
  verdict: (a, b) => b.severity - a.severity || a.asked - b.asked,
  score: (a, b) => a.score - b.score || a.asked - b.asked,
  seconds: (a, b) => b.seconds - a.seconds || a.asked - b.asked,
  name: (a, b) => a.name.localeCompare(b.name) || a.asked - b.asked,
};

export function claims(): void {
  const search = one<HTMLInputElement>("#search");
  const order = one<HTMLSelectElement>("#order");
  const shown = one<HTMLOutputElement>("#shown");
  const buttons = all<HTMLButtonElement>("button[data-filter]");
  const nothing = one<HTMLElement>(".nothing");
  const list = collect();
  if (!search || !order || !shown || list.length < 2) return;
  const chosen = new Set<string>();

  const filter = (): void => {
    const wanted = search.value.trim().toLowerCase();
    let count = 0;
    for (const claim of list) {
      const visible = (chosen.size === 0 || chosen.has(claim.verdict)) && claim.words.includes(wanted);
      for (const part of claim.parts) part.hidden = !visible;
      count += Number(visible);
    }
    for (const item of buttons) item.setAttribute("aria-pressed", String(chosen.has(item.dataset.filter ?? "")));
    nothing?.toggleAttribute("hidden", count > 0);
    shown.textContent = count === list.length ? `${count} claims` : `${count} of ${list.length} claims`;
  };
  const sort = (): void => {
    const compare = ORDERS[order.value] ?? ORDERS.asked!;
    for (const claim of [...list].sort(compare)) for (const part of claim.parts) part.parentElement?.append(part);
  };
  const reset = (): void => {
    chosen.clear();
    search.value = "";
    filter();
  };

  for (const item of buttons) {
    const verdict = item.dataset.filter ?? "";
    item.disabled = !list.some((claim) => claim.verdict === verdict);
    item.addEventListener("click", () => {
      if (!chosen.delete(verdict)) chosen.add(verdict);
      filter();
    });
  }
  search.addEventListener("input", filter);
  order.addEventListener("change", sort);
  for (const id of ["#reset", "#again"]) one<HTMLButtonElement>(id)?.addEventListener("click", reset);
  window.addEventListener("hashchange", () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target?.closest("[hidden]")) {
      reset();
      target.scrollIntoView();
    }
  });
  search.closest("[hidden]")?.removeAttribute("hidden");
  filter();
}

function collect(): Claim[] {
  const entries = new Map(all<HTMLElement>(".contents li").map((entry) => [entry.dataset.for, entry]));
  return all<HTMLElement>(".findings > .finding").map((item, asked) => {
    const entry = entries.get(item.id);
    const summary = one("summary", item);
    return {
      parts: [item, entry].filter((part): part is HTMLElement => Boolean(part)),
      verdict: item.dataset.verdict ?? "",
      severity: Number(item.dataset.severity),
      score: Number(item.dataset.score ?? Infinity),
      seconds: Number(item.dataset.seconds),
      name: one(".where", item)?.textContent ?? "",
      words: (summary?.textContent ?? "").toLowerCase(),
      asked,
    };
  });
}
