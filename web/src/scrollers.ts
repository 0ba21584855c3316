// A box that scrolls sideways must be reachable by keyboard and have a name; one that does not must be neither.
import { all } from "./dom";

export function scrollers(inside: ParentNode = document): void {
  const update = (box: HTMLElement): void => {
    const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    if (scrolls) {
      const caption = box.querySelector("caption")?.textContent ?? box.closest("section, article")?.querySelector("h2, h3, h4")?.textContent;
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", `Table: ${(caption ?? "numbers").slice(0, 80)}`);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    }
  };
  const watcher = new ResizeObserver((entries) => entries.forEach((entry) => update(entry.target as HTMLElement)));
  all<HTMLElement>(".scroll", inside).forEach((box) => watcher.observe(box));
}
