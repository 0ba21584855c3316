// The viewer's list: filter, choose what to compare, and follow running verifications.
import { all, one } from "./dom";
import { hover } from "./hover";
import { scrollers } from "./scrollers";
import { sortableTables } from "./tables";
import { theme } from "./theme";
import { zoom } from "./zoom";

interface Track { name: string; done: number; total: number; state: string }
interface Running { name: string; done: number; total: number; failed: number; left: string; tracks: Track[] }

const EVERY = 1000;

theme();
for (const part of [sortableTables, scrollers, hover, zoom]) part();
for (const part of [filter, choose, follow, pictures]) part();

function filter(): void {
  const search = one<HTMLInputElement>("#search");
  const verdict = one<HTMLSelectElement>("#verdict");
  const shown = one<HTMLOutputElement>("#shown");
  if (!search || !verdict || !shown) return;
  const rows = all<HTMLTableRowElement>(".list tbody tr");
  const apply = (): void => {
    const wanted = search.value.trim().toLowerCase();
    let count = 0;
    for (const row of rows) {
      const fits = !verdict.value || row.dataset.verdict === verdict.value;
      row.hidden = !(fits && (row.textContent ?? "").toLowerCase().includes(wanted));
      count += Number(!row.hidden);
    }
    for (const section of all<HTMLElement>(".kind")) section.hidden = !all<HTMLElement>("tbody tr", section).some((row) => !row.hidden);
    one(".nothing")?.toggleAttribute("hidden", count > 0 || rows.length === 0);
    shown.textContent = `${count} of ${rows.length} runs`;
  };
  one("#again")?.addEventListener("click", () => {
    search.value = verdict.value = "";
    apply();
  });
  search.addEventListener("input", apply);
  verdict.addEventListener("change", apply);
  one(".js")?.removeAttribute("hidden");
  apply();
}

function choose(): void {
  const control = one<HTMLButtonElement>("#compare");
  if (!control) return;
  const boxes = all<HTMLInputElement>("input[name=run]");
  const apply = (): void => {
    const count = boxes.filter((box) => box.checked).length;
    control.disabled = count < 2;
    control.textContent = count < 2 ? "Choose two runs to compare" : `Compare ${count} runs`;
  };
  boxes.forEach((box) => box.addEventListener("change", apply));
  apply();
}

function follow(): void {
  if (!one(".list")) return;
  const sections = new Map(all<HTMLElement>(".live").map((section) => [section.dataset.run ?? "", section]));
  const timer = setInterval(async () => {
    let running: Running[];
    try {
      running = (await (await fetch("progress.json")).json()) as Running[];
    } catch {
      clearInterval(timer); // The viewer was closed; the last state stays on the page.
      return;
    }
    const same = running.length === sections.size && running.every((run) => sections.has(run.name));
    // A run that began or ended changes the list itself, unless someone is in the middle of choosing.
    if (!same) {
      if (!all<HTMLInputElement>("input[name=run]:checked").length) location.reload();
      return;
    }
    for (const run of running) update(sections.get(run.name)!, run);
  }, EVERY);
}

function update(section: HTMLElement, run: Running): void {
  const bars = all<HTMLProgressElement>("progress", section);
  const set = (bar: HTMLProgressElement | undefined, done: number, total: number): void => {
    if (bar) [bar.max, bar.value] = [total || 1, done];
  };
  set(bars[0], run.done, run.total);
  const count = one(".count", section);
  const left = one(".left", section);
  if (count) count.textContent = `${run.done} of ${run.total} cells${run.failed ? `, ${run.failed} failed` : ""}`;
  if (left) left.textContent = run.left;
  const states = all(".state", section);
  run.tracks.forEach((track, index) => {
    set(bars[index + 1], track.done, track.total);
    const state = states[index];
    if (state) state.textContent = `${track.done}/${track.total} · ${track.state}`;
  });
}

/** A link to a folded picture opens it first. */
function pictures(): void {
  document.body.classList.add("scripted");
  const reveal = (): void => {
    const target = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    const owner = target?.closest("details");
    if (!owner) return;
    owner.open = true;
    target?.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.<HTMLAnchorElement>('a[href^="#"]');
    if (link && link.hash === location.hash) reveal();
  });
  reveal();
}
