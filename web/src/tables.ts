// Tables whose rows stand alone can be sorted by any column; a second click turns the order round.
import { all, make, parse } from "./dom";

export function sortableTables(inside: ParentNode = document): void {
  for (const table of all<HTMLTableElement>("table.sortable", inside)) {
    const body = table.tBodies[0];
    const heads = all<HTMLTableCellElement>("thead th", table);
    if (!body || body.rows.length < 2) continue;
    heads.forEach((head, column) => {
      const control = make("button", head.textContent ?? "", { type: "button" });
      head.replaceChildren(control);
      control.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sign = down ? -1 : 1;
        body.append(...[...body.rows].sort((a, b) => sign * compare(a.cells[column], b.cells[column])));
      });
    });
  }
}

function compare(a: HTMLTableCellElement | undefined, b: HTMLTableCellElement | undefined): number {
  const [x, y] = [key(a), key(b)];
  if (typeof x === "number" && typeof y === "number") return x - y;
  if (typeof x === typeof y) return String(x).localeCompare(String(y));
  return typeof x === "number" ? -1 : 1;
}

function key(cell: HTMLTableCellElement | undefined): number | string {
  const text = cell?.dataset.v ?? cell?.textContent?.trim() ?? "";
  const value = parse(text);
  return Number.isNaN(value) ? text.toLowerCase() : value;
}
